"""What `fl-lab run` shows: a line per round as it becomes known, a bar on a terminal, a table at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import click

from edgeflock.common import extras
from edgeflock.common.scores import LOCAL, POOLED
from edgeflock.common.units import amount
from edgeflock.server.console.totals import spent, totals, used
from edgeflock.server.feed import Event
from edgeflock.server.time_line import GATHER, PAUSED

_PATIENCE = 3  # rounds whose line waits for an evaluation, at most
_GROUPS = {LOCAL: "clients, own test", POOLED: "clients, pooled test"}
_COMMITTED = ("round_committed", "closing_committed")
_TELLING = (*_COMMITTED, "run_ended")
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass
class Row:
    """One round as it is shown."""

    round: int
    rounds: int
    bytes: float
    seconds: float
    train_loss: float | None
    budget: str = ""  # shares used
    closing: bool = False  # the task after the last round
    accuracy: float | None = None
    loss: float | None = None

    def text(self) -> str:
        width = len(str(self.rounds))
        name = (
            "closing".ljust(2 * width + 7) if self.closing else f"round {self.round:>{width}}/{self.rounds}"
        )
        whose, shown = ("train", self.train_loss) if self.loss is None else ("test", self.loss)
        return (
            f"{name}  accuracy {_decimal(self.accuracy)}  "
            f"{whose:>5} loss {_decimal(shown)}  {size(self.bytes):>9}  {self.seconds:7.2f} s{self.budget}"
        )


@dataclass
class Rows:
    """Rounds in their order; a round's row is held back until its evaluation is there, if it has one."""

    rounds: int
    eval_every: int
    waiting: dict[int, Row] = field(default_factory=dict)

    def take(self, event: Event) -> Iterator[Row]:
        """Take one event and yield the rows that are complete now."""
        number = int(event.number("round") or 0)
        if event.name in _COMMITTED:
            total = (event.number("bytes_up") or 0) + (event.number("bytes_down") or 0)
            self.waiting[number] = Row(
                number,
                self.rounds,
                total,
                event.number("seconds") or 0.0,
                event.number("loss"),
                _shares(event),
                closing=event.name == "closing_committed",
            )
        elif event.name == "evaluated" and number in self.waiting and _is_global(event):
            self.waiting[number].accuracy = event.number("accuracy")
            self.waiting[number].loss = event.number("loss")
        yield from self._complete(event.name == "run_ended")

    def _complete(self, ended: bool) -> Iterator[Row]:
        for number in sorted(self.waiting):
            if not (ended or self._known(self.waiting[number]) or len(self.waiting) > _PATIENCE):
                return
            yield self.waiting.pop(number)

    def _known(self, row: Row) -> bool:
        last = row.closing or row.round == self.rounds
        expected = self.eval_every > 0 and (last or row.round % self.eval_every == 0)
        return row.accuracy is not None or not expected


class Display(Protocol):
    """Where rows go."""

    def show(self, row: Row) -> None: ...

    def say(self, sentence: str) -> None: ...

    def close(self) -> None: ...


class Plain:
    """One line per round, for pipes and files."""

    def show(self, row: Row) -> None:
        click.echo(row.text())

    def say(self, sentence: str) -> None:
        click.echo(sentence)

    def close(self) -> None:
        """There is nothing to take back."""


class Bar:
    """The lines above a progress bar, for a terminal."""

    def __init__(self, rounds: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), transient=True
        )
        self._task = self._progress.add_task("rounds", total=rounds)
        self._progress.start()

    def show(self, row: Row) -> None:
        self._progress.update(self._task, completed=row.round)
        self.say(row.text())

    def say(self, sentence: str) -> None:
        self._progress.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def display(rounds: int, terminal: bool) -> Display:
    """Return a bar for a terminal if it can be drawn, else plain lines."""
    return Bar(rounds) if terminal and extras.installed("rich") else Plain()


# ------------------------------------------------------------------------------------------------ the end


def summary(run_dir: Path, events: Iterable[Event], goal: float | None = None) -> str:
    """Return the table at the end of a run, over all its lives; `goal` is the accuracy it was to reach."""
    events = list(events)
    committed = [event for event in events if event.name in _COMMITTED]
    rounds = [event for event in committed if event.name == "round_committed"]
    tested = [event for event in events if event.name == "evaluated" and _is_global(event)]
    accuracies = [number for event in tested if (number := event.number("accuracy")) is not None]
    rows: list[tuple[str, str]] = [
        ("ended", _ending(events)),
        ("rounds", str(max((int(event.number("round") or 0) for event in rounds), default=0))),
        ("final accuracy", _decimal(accuracies[-1] if accuracies else None)),
        ("best accuracy", _decimal(max(accuracies, default=None))),
        *([("target", _target(goal, accuracies))] if goal else []),
        *_groups(events),
        *_paid(run_dir, committed),
        *totals(run_dir),
        *((f"budget of {name}", said) for name, said in spending(events, used(run_dir))),
        ("model SHA-256", model_digest(run_dir) or "no final model"),
        ("run directory", str(run_dir)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _target(goal: float, accuracies: Iterable[float]) -> str:
    came = "reached" if any(accuracy >= goal for accuracy in accuracies) else "not reached"
    return f"accuracy {goal:g}, {came}"


def _paid(run_dir: Path, committed: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Yield bytes and time: from the ledger, or what the lines of the rounds say."""
    found = spent(run_dir) or {
        name: _total(committed, name) for name in ("bytes_up", "bytes_down", "seconds")
    }
    yield "bytes up", size(found["bytes_up"])
    yield "bytes down", size(found["bytes_down"])
    before = found.pop(GATHER, 0.0)
    seconds = sum(value for name, value in found.items() if not name.startswith("bytes"))
    waited = f", after {amount('seconds', before)} until the clients were there" if before else ""
    rested = f", {amount('seconds', paused)} of them paused" if (paused := found.get(PAUSED, 0.0)) else ""
    yield "time", f"{amount('seconds', seconds)} of rounds{rested}{waited}"


def _groups(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """Yield how each group of models beside the global one did in its last test."""
    last = {str(e.fields.get("model")): e for e in events if e.name == "evaluated" and not _is_global(e)}
    for model, event in last.items():
        members = int(event.number("members") or 1)
        found = f"{'mean ' if members > 1 else ''}accuracy {_decimal(event.number('accuracy'))}"
        if members > 1:
            found += f", deviation {_decimal(event.number('deviation'))}"
            found += f", worst tenth {_decimal(event.number('worst_tenth'))}, of {members} models"
        yield _GROUPS.get(model, model.replace("_", " ")), found


def model_digest(run_dir: Path) -> str:
    """Return the SHA-256 of the final model's file, or nothing if there is none."""
    path = run_dir / "model.safetensors"
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size(count: float) -> str:
    """Return bytes for people, in powers of 1000."""
    value, unit = float(count), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


_QUANTITIES = {"bytes": "bytes", "energy": "energy"}  # all other budgets are of seconds


def _budgets(event: Event) -> list[tuple[str, float, float]]:
    """Return every budget with what was used of it, as the event has it."""
    return [(name, used, limit) for name, (used, limit) in event.fields.get("budget", {}).items()]


def _shares(event: Event) -> str:
    """Return how much of every budget is used."""
    told = ", ".join(
        f"{name} {'-':>4}" if _unknown(name, used) else f"{name} {used / limit:>4.0%}"
        for name, used, limit in _budgets(event)
    )
    return f"  budget used: {told}" if told else ""


def _unknown(name: str, used: float) -> bool:
    """Whether nobody has told of it: what trains takes energy."""
    return name == "energy" and used == 0


def spending(events: Iterable[Event], later: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield every budget with what is used of it, in words: by the last event that names them, and by the
    journal, which knows later of a round that is open, and of what clients said after the end."""
    told = [event for event in events if event.fields.get("budget") and event.name in _TELLING]
    for name, then, limit in _budgets(told[-1]) if told else []:
        yield name, _spent(name, max(then, later.get(name, 0.0)), limit)


def _spent(name: str, used: float, limit: float) -> str:
    """Return what is used of a budget, and how much of that is beyond it."""
    quantity = _QUANTITIES.get(name, "seconds")
    whole = f"of {amount(quantity, limit)}"
    if _unknown(name, used):
        return f"not known {whole}: no client stated its energy, see fl-client --watts"
    beyond = f", {amount(quantity, used - limit)} beyond it" if used > limit else ""
    return f"{amount(quantity, used)} {whole}{beyond}"


def _ending(events: Iterable[Event]) -> str:
    ends = [event for event in events if event.name == "run_ended"]
    if not ends:
        return "not yet: start it again on its run directory to go on"
    kind, reason = ends[-1].fields.get("kind", ""), ends[-1].fields.get("reason", "")
    return f"{kind}, {reason}" if kind and reason else str(kind or reason)


def _is_global(event: Event) -> bool:
    return str(event.fields.get("model", "global")) == "global"


def _total(events: Iterable[Event], key: str) -> float:
    return sum(event.number(key) or 0.0 for event in events)


def _decimal(value: Any) -> str:
    return "     -" if value is None else f"{value:.4f}"
