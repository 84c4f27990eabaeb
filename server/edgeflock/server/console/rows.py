"""One line for each round, as it becomes known. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgeflock.common.command.terminal import Line, Piece, length
from edgeflock.common.command.units import decimals, size
from edgeflock.common.scores import ACCURACY, LOSS, figure_told
from edgeflock.server.costs.budget import unmeasured

COMMITTED = ("round_committed", "last_round_committed")
_GLOBAL = "global"  # the model that targets and curves mean
_PATIENCE = 3  # rounds whose line waits for an evaluation, at most
_NAMED = 3  # clients that are named, at most
_SHORT = {"accuracy": "acc", "perplexity": "perpl"}  # where there is little room


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
    missed: tuple[str, ...] = ()  # members whose update does not count
    figure: str = ACCURACY.name  # by which the model is judged
    value: float | None = None
    loss: float | None = None
    best: bool = False  # no round before was so good

    def line(self, width: int | None = None) -> Line:
        """Return the fullest form for which there is room."""
        forms = [
            [*self._wide(), *self._without(), *self._budget("budget used: ")],
            [*self._wide(), *self._without(), *self._budget()],
            *([[*self._narrow(), *self._budget()]] if self.budget else []),
            [*self._wide(), *self._without()],
            self._narrow(),
        ]
        return next((form for form in forms if width is None or length(form) <= width), forms[-1])

    def _wide(self) -> list[Piece]:
        whose, shown = ("train", self.train_loss) if self.loss is None else ("test", self.loss)
        if self.closing and self.value is None and shown is None:  # its tests are told in the rounds' lines
            return [(self._name(), "bold"), (f"  {size(self.bytes):>9}  {self.seconds:7.2f} s", "dim")]
        return [
            (self._name(), "bold"),
            *self._judged(self.figure),
            (f"  {whose:>5} loss {decimal(shown)}", ""),
            (f"  {size(self.bytes):>9}  {self.seconds:7.2f} s", "dim"),
        ]

    def _narrow(self) -> list[Piece]:
        shown = self.train_loss if self.loss is None else self.loss
        return [
            (self._name(), "bold"),
            *self._judged(_SHORT.get(self.figure, self.figure)),
            (f"  loss {decimal(shown)}", ""),
            (f"  {size(self.bytes):>8}  {decimals(self.seconds, 2)} s", "dim"),
        ]

    def _judged(self, name: str) -> list[Piece]:
        if name == LOSS.name:  # which stands beside it
            return []
        return [(f"  {name} ", ""), (decimal(self.value), "good" if self.best else "")]

    def _name(self) -> str:
        width = len(str(self.rounds))
        if self.closing:
            return "closing".ljust(2 * width + 7)
        return f"round {self.round:>{width}}/{self.rounds}"

    def _without(self) -> list[Piece]:
        if not self.missed:
            return []
        named = len(self.missed) <= _NAMED
        who = ", ".join(self.missed) if named else f"{len(self.missed)} clients"
        return [(f"  without {who}", "warning")]

    def _budget(self, title: str = "") -> list[Piece]:
        return [(f"  {title}{self.budget}", "")] if self.budget else []


@dataclass
class Rows:
    """Rounds in their order; a round's row is held back until its evaluation is there, if it has one."""

    rounds: int
    eval_every: int
    figure: str = ACCURACY.name
    waiting: dict[int, Row] = field(default_factory=dict)
    best: float | None = None  # value so far
    behind: int = 0  # rounds: a row has the test of the model of so many before

    def take(self, name: str, fields: Mapping[str, Any]) -> Iterator[Row]:
        """Take one event and yield the rows that are complete now."""
        number = int(numeric(fields, "round") or 0)
        if name in COMMITTED:
            self.waiting[number] = self._row(number, name, fields)
        elif name == "evaluated" and number + self.behind in self.waiting and is_global(fields):
            row = self.waiting[number + self.behind]
            figure = figure_told(fields)
            row.figure = self.figure = figure.name
            row.value, row.loss = numeric(fields, figure.name), numeric(fields, "loss")
            if row.value is not None and (self.best is None or figure.better(row.value, self.best)):
                row.best, self.best = True, row.value
        yield from self.rest() if name == "run_ended" else self._complete()

    def rest(self) -> Iterator[Row]:
        """Yield the rows whose evaluation will not come any more."""
        for number in sorted(self.waiting):
            yield self.waiting.pop(number)

    def _row(self, number: int, name: str, fields: Mapping[str, Any]) -> Row:
        return Row(
            number,
            self.rounds,
            (numeric(fields, "bytes_up") or 0) + (numeric(fields, "bytes_down") or 0),
            numeric(fields, "seconds") or 0.0,
            numeric(fields, "loss"),
            shares(fields),
            closing=name == "last_round_committed",
            figure=self.figure,
            missed=tuple(fields.get("not_counted") or ()),
        )

    def _complete(self) -> Iterator[Row]:
        for number in sorted(self.waiting):
            if not (self._known(self.waiting[number]) or len(self.waiting) > _PATIENCE):
                return
            yield self.waiting.pop(number)

    def _known(self, row: Row) -> bool:
        last = row.closing or row.round == self.rounds
        expected = self.eval_every > 0 and (last or row.round % self.eval_every == 0)
        return row.value is not None or not expected


def is_global(fields: Mapping[str, Any]) -> bool:
    """Whether an evaluation is of the model that targets and curves mean."""
    return str(fields.get("model", _GLOBAL)) == _GLOBAL


def numeric(fields: Mapping[str, Any], key: str) -> float | None:
    """Return a field if it is a number."""
    value = fields.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def budgets(fields: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return every budget with what was used of it, as an event has it."""
    return [(name, used, limit) for name, (used, limit) in fields.get("budget", {}).items()]


def shares(fields: Mapping[str, Any]) -> str:
    """Return how much of every budget is used."""
    return ", ".join(f"{name} {share(name, used, limit)}" for name, used, limit in budgets(fields))


def share(name: str, used: float, limit: float) -> str:
    return f"{'-':>4}" if unmeasured(name, used) else f"{used / limit:>4.0%}"


def decimal(value: float | None) -> str:
    return "     -" if value is None else f"{value:.4f}"
