"""The table at the end of a run, over all its lives, and what can be done with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from edgeflock.common.command.terminal import Terminal, spark
from edgeflock.common.command.units import amount, size
from edgeflock.common.scores import ACCURACY, DEVICES, LOCAL, POOLED, Metric, figure_told
from edgeflock.server.config import ServerConfig
from edgeflock.server.console.caution import UNTESTED, Caution, ModelTest, caution
from edgeflock.server.console.onward import onward
from edgeflock.server.console.rows import COMMITTED, budgets, decimal, is_global
from edgeflock.server.console.totals import Totals, totals
from edgeflock.server.core.target import Target, parse
from edgeflock.server.costs.budget import RESOURCES, unmeasured
from edgeflock.server.costs.time_line import GATHER, PAUSED
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Event, Feed

_GROUPS = {DEVICES: "on the devices", LOCAL: "clients, own test", POOLED: "clients, pooled test"}
_NO_METRICS = ("round", "loss", "members", "deviation", "worst_tenth")
_TELLING = (*COMMITTED, "run_ended")
_CURVE = 40  # values that are drawn

Table = list[tuple[str, str]]


def title(config: ServerConfig, run_dir: Path) -> str:
    """Return what a run is, in a line."""
    data = config.dataset or "data of its clients"
    one = config.clients == 1
    among = f"{config.clients} client{'s'[one:]}"
    if config.central:
        among = f"the union of {config.clients} shard{'s'[one:]}"
    return f"{config.method} on {data} ({config.model}) with {among}, {config.rounds} rounds, in {run_dir}"


def conclude(terminal: Terminal, run_dir: Path) -> None:
    """Write the table of a run that is over, and what to type next."""
    with closing(Feed(run_dir)) as feed:
        events, measures = feed.read(), feed.measures()
    config = from_toml(run_dir / rundir.RUN_TOML)
    goal = parse(config.target, measures)
    found, tests = rows(run_dir, events, goal, measures[0]), tested(events)
    if terminal.moves and terminal.unicode and len(tests) > 1:
        found.insert(4, ("course", spark([test.value for test in tests], _CURVE)))
    terminal.say(())
    width = max(len(name) for name, _ in found)
    for name, value in found:
        terminal.say([(f"{name:<{width}}  ", "dim"), (value, "")], indent=width + 2)
    terminal.say(())
    for name, words in onward(run_dir, untested(config, events) or caution(tests, measures[0])):
        terminal.say([(f"{name}: {words}", "warning" if name == "caution" else "bold")], indent=len(name) + 2)


def is_over(run_dir: Path) -> bool:
    """Whether the run has said how it ended."""
    with closing(Feed(run_dir)) as feed:
        return any(event.name == "run_ended" for event in feed.read())


def untested(config: ServerConfig, events: Iterable[Event]) -> Caution | None:
    """Return what to hear of a run that was to test its models, and in which nobody could."""
    names = {event.name for event in events}
    wanted = config.eval_every > 0 and config.dataset is None and config.eval_data is None
    return UNTESTED if wanted and "round_committed" in names and "evaluated" not in names else None


def tested(events: Iterable[Event]) -> list[ModelTest]:
    """Return the tests of the global model by round; the last one of a round that was tested again."""
    found = {}
    for event in standing(events):
        figures = [event.number(name) for name in ("round", figure_told(event.fields).name, "loss")]
        if event.name == "evaluated" and is_global(event.fields) and None not in figures:
            round, value, loss = (float(figure or 0.0) for figure in figures)
            found[round] = ModelTest(int(round), value, loss)
    return [found[round] for round in sorted(found)]


def standing(events: Iterable[Event]) -> list[Event]:
    """Return the events without the rounds that the run has gone back on, and what was said of them."""
    found: list[Event] = []
    for event in events:
        if event.name == "epoch_raised":
            base = event.number("round") or 0
            undone = (*COMMITTED, "evaluated")
            found = [one for one in found if one.name not in undone or (one.number("round") or 0) <= base]
        found.append(event)
    return found


def rows(
    run_dir: Path, events: Iterable[Event], goal: Target | None = None, figure: Metric = ACCURACY
) -> Table:
    """Return the table; `goal` is what the run was to reach, `figure` what its models are judged by."""
    events, ledger = standing(events), totals(run_dir)
    committed = [event for event in events if event.name in COMMITTED]
    rounds = [event for event in committed if event.name == "round_committed"]
    tested = [event for event in events if event.name == "evaluated" and is_global(event.fields)]
    values = [number for event in tested if (number := event.number(figure.name)) is not None]
    return [
        ("ended", _ending(events)),
        ("rounds", str(max((int(event.number("round") or 0) for event in rounds), default=0))),
        *_judged(tested, values, figure, rounds),
        *([("target", _target(goal, tested))] if goal else []),
        *_groups(events),
        *_paid(ledger, committed),
        *ledger.rows(),
        *((f"budget of {name}", said) for name, said in spending(events, ledger.used)),
        ("model SHA-256", model_digest(run_dir) or "no final model"),
        ("run directory", str(run_dir)),
    ]


def _judged(
    tested: Sequence[Event], values: Sequence[float], figure: Metric, rounds: Sequence[Event]
) -> Iterator[tuple[str, str]]:
    """Yield how good the global model is, last and at its best."""
    others = [f"{name} {decimal(value)}" for name, value in _others(tested[-1], figure)] if values else []
    trained = [event for event in rounds if event.number("loss") is not None]  # none, where they test alone
    of, last = ((one[-1].number("round") or 0) if one else 0 for one in (tested, trained))
    whose = f" (of round {of:.0f}: that of round {last:.0f} was not tested)" if values and of < last else ""
    yield f"final {figure.name}", ", ".join([decimal(values[-1] if values else None), *others]) + whose
    yield f"best {figure.name}", decimal(figure.best(values))


def _others(event: Event, figure: Metric) -> Iterator[tuple[str, float]]:
    """Yield the task's other metrics of an evaluation."""
    for name in event.fields:
        value = event.number(name)
        if value is not None and name not in (figure.name, *_NO_METRICS):
            yield name, value


def _target(goal: Target, tested: Iterable[Event]) -> str:
    came = "reached" if any(goal.met(event.number(goal.metric.name)) for event in tested) else "not reached"
    return f"{goal}, {came}"


def _paid(ledger: Totals, committed: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Yield bytes and time: from the ledger, or what the lines of the rounds say."""
    found = ledger.spent or {name: _total(committed, name) for name in ("bytes_up", "bytes_down", "seconds")}
    more = ", or more: a server was killed in mid-round" if ledger.is_least else ""
    yield "bytes up", size(found["bytes_up"]) + more
    yield "bytes down", size(found["bytes_down"]) + more
    before = found.pop(GATHER, 0.0)
    seconds = sum(value for name, value in found.items() if not name.startswith("bytes"))
    held = f", paused for {amount('seconds', ledger.held_s)} between them" if ledger.held_s else ""
    waited = f", after {amount('seconds', before)} until the clients were there" if before else ""
    rested = f", {amount('seconds', paused)} of them paused" if (paused := found.get(PAUSED, 0.0)) else ""
    yield "time", f"{amount('seconds', seconds)} of rounds{rested}{held}{waited}"


def _groups(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """Yield how each group of models beside the global one did in its last test."""
    last = {
        str(e.fields.get("model")): e for e in events if e.name == "evaluated" and not is_global(e.fields)
    }
    for model, event in last.items():
        members, name = int(event.number("members") or 1), figure_told(event.fields).name
        found = f"{'mean ' if members > 1 else ''}{name} {decimal(event.number(name))}"
        if members > 1:
            found += f", deviation {decimal(event.number('deviation'))}"
            found += f", worst tenth {decimal(event.number('worst_tenth'))}, of {members} models"
        yield _GROUPS.get(model, model.replace("_", " ")), found


def model_digest(run_dir: Path) -> str:
    """Return the SHA-256 of the final model's file, or nothing if there is none."""
    path = run_dir / "model.safetensors"
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def spending(events: Iterable[Event], later: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield every budget with what is used of it, in words: by the last event that names them, and by the
    journal, which knows later of a round that is open, and of what clients said after the end."""
    told = [event for event in events if event.fields.get("budget") and event.name in _TELLING]
    for name, then, limit in budgets(told[-1].fields) if told else []:
        yield name, _spent(name, max(then, later.get(name, 0.0)), limit)


def _spent(name: str, used: float, limit: float) -> str:
    """Return what is used of a budget, and how much of that is beyond it."""
    quantity = RESOURCES[name].quantity if name in RESOURCES else "seconds"
    whole = f"of {amount(quantity, limit)}"
    if unmeasured(name, used):
        return f"not known {whole}: no client stated its energy, see fl-client --watts"
    beyond = f", {amount(quantity, used - limit)} beyond it" if used > limit else ""
    return f"{amount(quantity, used)} {whole}{beyond}"


def _ending(events: Iterable[Event]) -> str:
    ends = [event for event in events if event.name == "run_ended"]
    if not ends:
        return "not yet: start it again on its run directory to go on"
    kind, reason = ends[-1].fields.get("kind", ""), ends[-1].fields.get("reason", "")
    return f"{kind}, {reason}" if kind and reason else str(kind or reason)


def _total(events: Iterable[Event], key: str) -> float:
    return sum(event.number(key) or 0.0 for event in events)
