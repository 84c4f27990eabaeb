"""The history of a run, finished or going on: its rounds and clients, what they cost and came to, as values.

What the lab reckons with, and who else analyses runs: `read` a run directory, and ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgeflock.common.errors import MissingData
from edgeflock.common.scores import Metric, Summary, measures_from_text
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.target import Target, parse
from edgeflock.server.costs import catalogue
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Event, Held, Key, Numbers, Reader, RoundRow, require, snapshot

GLOBAL = "global"  # the model that targets and curves mean
COMPLETED = "completed"  # how a run ended as it should
FAILED = "failed"
TIME_LINE = catalogue.names(catalogue.TIME_LINE)
ITERATIONS = "iterations"  # local steps of a client, in committed rounds of training
SIMULATED = "simulated_s"
ALL_FLOPS = "all_flops"  # operations of clients and server
SERVER_J = "server_j"  # joules of the server, beside those of the clients
_OF_THE_SERVER = frozenset(catalogue.names(catalogue.BY_ROUND))
_MEASURED = "measured "  # before the names of costs that a method was told


@dataclass(frozen=True)
class Client:
    """One client over the whole run."""

    seat: int
    name: str
    samples: int | None
    costs: Numbers  # sums over all rounds; of peaks and temperatures the largest
    verdicts: Mapping[str, int]  # how often each was given
    scores: Mapping[str, Summary]  # of its own model, by name, in its last test
    device: Mapping[str, Any]  # as it said at its last Join: machine, system, cores, software ...
    classes: tuple[int, ...] = ()  # its samples of each class, as it said; empty: it did not


@dataclass(frozen=True)
class RoundHistory:
    """One round."""

    epoch: int
    number: int
    last: str  # why training was over; empty: a round of training
    committed: bool
    cohort: tuple[int, ...]  # seats, those that were added too
    verdicts: Mapping[str, int]  # how many members got each
    values: Numbers  # of the method and of the server, as in round_costs
    costs: Numbers  # sums over the clients; of peaks and temperatures the largest
    evaluations: Mapping[str, Summary]  # by model
    spent: Numbers  # seconds, bytes and other costs of the run up to the end of this round
    opened: bool = True  # False: a budget ended the run before, but to find that took time
    bundles: Mapping[Held, int] = field(
        default_factory=dict
    )  # payload by what it held, if that was asked for

    @property
    def time_line(self) -> Numbers:
        """Seconds of the server in this round; they exclude each other."""
        return {name: self.values[name] for name in TIME_LINE if name in self.values}

    @property
    def metrics(self) -> Numbers:
        """What the method says of the round: loss, tau, norm_ratio ..."""
        said = {name: value for name, value in self.values.items() if not name.startswith(_MEASURED)}
        return {name: value for name, value in said.items() if name not in _OF_THE_SERVER}

    @property
    def seconds(self) -> float:
        return sum(self.time_line.values())

    @property
    def bytes(self) -> float:
        """Payload of all clients, both ways."""
        return self.costs.get("bytes_down", 0.0) + self.costs.get("bytes_up", 0.0)

    @property
    def joules(self) -> Numbers:
        """Energy by who says so: `sensor_j` and `model_j` of the clients, `server_j`."""
        clients = {
            name: self.costs[name] for name in catalogue.names(catalogue.JOULES) if self.costs.get(name)
        }
        server = self.values.get("energy_j")
        return {**clients, SERVER_J: server} if server else clients

    @property
    def energy_j(self) -> float | None:
        """Energy of clients and server, None where nobody told of any."""
        found = [cost["energy_j"] for cost in (self.costs, self.values) if "energy_j" in cost]
        return sum(found) if found else None

    @property
    def simulated_s(self) -> float | None:
        """Seconds of the simulated clock, None where the run has none."""
        return self.values.get(SIMULATED)


@dataclass(frozen=True)
class Point:
    """One evaluation, and what the run had cost by then."""

    round: int
    evaluation: Summary
    spent: Numbers


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    kind: str  # completed, stopped, failed
    reason: str


@dataclass(frozen=True)
class History:
    """All that the journal holds of a run."""

    run_dir: Path
    config: ServerConfig
    run_id: str
    meta: Mapping[str, str]
    clients: tuple[Client, ...]  # by seat
    rounds: tuple[RoundHistory, ...]  # committed ones, as the run stands now; the last round too
    others: tuple[RoundHistory, ...]  # discarded, open, gone back on, or that to which a run went back
    events: tuple[Event, ...]
    ending: Ending | None  # None: the run is not over
    used: Numbers = field(default_factory=dict)  # of the budgets, by resource

    @property
    def measures(self) -> tuple[Metric, ...]:
        """By what its models are judged: its figure, its task's other metrics, the loss."""
        return measures_from_text(self.meta.get("measures"))

    @property
    def figure(self) -> Metric:
        """The first of them: what targets, curves and the best model mean."""
        return self.measures[0]

    @property
    def target(self) -> Target:
        """What its model was to reach."""
        return parse(self.config.target, self.measures)

    @property
    def training(self) -> tuple[RoundHistory, ...]:
        """Rounds of training: without the last round, where all are asked once more."""
        return tuple(round for round in self.rounds if not round.last)

    @property
    def total(self) -> Numbers:
        """What the whole run has cost so far: rounds that were given up, or never opened, were paid too."""
        every = (*self.rounds, *self.others)
        last = max(every, key=lambda round: (round.epoch, round.number), default=None)
        return {} if last is None else last.spent

    @property
    def server(self) -> Mapping[str, Any]:
        """What the server ran on and with, as it said at its last start."""
        starts = [event.fields for event in self.events if event.name == "run_started"]
        return starts[-1] if starts else {}

    @property
    def bundles(self) -> dict[Held, int]:
        """All payload of the run by what it held, that of rounds that were given up too, if asked for."""
        total: dict[Held, int] = {}
        for round in (*self.rounds, *self.others):
            for what, size in round.bundles.items():
                total[what] = total.get(what, 0) + size
        return dict(sorted(total.items()))

    @property
    def failed_tests(self) -> int:
        """How many tests of models failed."""
        return sum(event.name == "evaluation_failed" for event in self.events)

    @property
    def energy_sources(self) -> frozenset[str]:
        """Who says its joules, as in `RoundHistory.joules`."""
        return frozenset(name for round in (*self.rounds, *self.others) for name in round.joules)

    def reached(self, level: float, model: str = GLOBAL, metric: Metric | None = None) -> Point | None:
        """Return the first evaluation that was at least so good, by the figure or another metric."""
        goal, name = Target(level, metric or self.figure), (metric or self.figure).name
        met = (p for p in self.curve(model) if goal.met(p.evaluation.of(name, self.figure.name)))
        return next(met, None)

    def best(self, model: str = GLOBAL) -> Point | None:
        """Return the best evaluation of a model, the first of equal ones."""
        found = self.curve(model)
        value = self.figure.best([point.evaluation.value for point in found])
        return next((point for point in found if point.evaluation.value == value), None)

    def curve(self, model: str = GLOBAL) -> list[Point]:
        """Return the evaluations of a model, by round."""
        return [
            Point(round.number, round.evaluations[model], round.spent)
            for round in self.rounds
            if model in round.evaluations
        ]

    def models(self) -> list[str]:
        """Return the names that were evaluated, the global model first."""
        names = {name for round in self.rounds for name in round.evaluations}
        return sorted(names, key=lambda name: (name != GLOBAL, name))


# ------------------------------------------------------------------------------- from a run directory


def read(run_dir: Path, *, bundles: bool = False) -> History:
    """Read a run, with what its bytes held if that is asked for: a long run has much of it.

    Raises MissingData if there is none, BadData with a sentence if it cannot be read.
    """
    require(run_dir)
    if not (run_dir / "run.toml").is_file():
        raise MissingData(f"{run_dir} has no run.toml: it is not known what was run")
    config = from_toml(run_dir / "run.toml")
    with snapshot(run_dir) as reader:
        return _history(run_dir, config, reader, bundles=bundles)


def client_rows(run_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield what every client did and cost in every round, one dictionary each; raises what `read` does."""
    with snapshot(run_dir) as reader:
        yield from cells(reader)


def bundle_rows(run_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the payload of every client and round by what it held; raises what `read` does."""
    with snapshot(run_dir) as reader:
        for epoch, number in reader.every_round():
            for row in reader.bundle_cells(epoch, number):
                yield {"epoch": epoch, "round": number, **row._asdict()}


def cells(reader: Reader) -> Iterator[dict[str, Any]]:
    """Yield the same of a journal that is open."""
    unknown = dict.fromkeys(catalogue.names(catalogue.BY_CLIENT))
    for epoch, number in reader.every_round():
        for cell in reader.cells(epoch, number):
            place = {"epoch": epoch, "round": number, "seat": cell.seat, "client": cell.client}
            yield {**place, "verdict": cell.verdict, **unknown, **cell.costs}


def _history(run_dir: Path, config: ServerConfig, reader: Reader, *, bundles: bool) -> History:
    meta, events = reader.meta(), tuple(reader.events())
    rows = reader.rounds()
    every = _rounds(reader, rows, reader.bundles() if bundles else {})
    standing = {(row.epoch, row.number) for row in rows if row.stands}
    ended = "ended_kind" in meta
    return History(
        run_dir=run_dir,
        config=config,
        run_id=meta.get("run_id", ""),
        meta=meta,
        clients=_clients(reader, events),
        rounds=tuple(round for round in every if (round.epoch, round.number) in standing),
        others=tuple(
            round
            for round in every
            if (round.cohort or not round.opened or round.costs or round.values)
            and (round.epoch, round.number) not in standing
        ),
        events=events,
        ending=Ending(meta["ended_kind"], meta.get("ended_reason", "")) if ended else None,
        used=reader.used(),
    )


def _rounds(
    reader: Reader, rows: Sequence[RoundRow], bundles: Mapping[Key, Mapping[Held, int]]
) -> list[RoundHistory]:
    """Return every round with what the run had spent by its end, what was given up included.

    One that took time and was never opened is among them: a budget was used up before.
    """
    values, costs, verdicts = reader.round_costs(), reader.totals("round"), reader.verdicts("round")
    evaluations, steps = _evaluations(reader, rows), reader.steps_each()
    known = {(row.epoch, row.number): row for row in rows}
    trainings = [key for key, row in known.items() if row.stands and row.cohort and not row.last]
    counted = all("server_flops" in values.get(key, {}) for key in trainings)  # not by an earlier edgeflock
    found, spent = [], dict[str, float]()
    for key in sorted({*known, *values, *costs}):
        row = known.get(key) or RoundRow(key[0], key[1], (), "", False, False)
        round = RoundHistory(
            epoch=row.epoch,
            number=row.number,
            last=row.last,
            committed=row.committed,
            cohort=row.cohort,
            verdicts=verdicts.get(key, {}),
            values=values.get(key, {}),
            costs=costs.get(key, {}),
            evaluations=evaluations.get(key, {}),
            spent={},
            opened=key in known,
            bundles=bundles.get(key, {}),
        )
        trained = {ITERATIONS: steps[key]} if row.stands and not row.last and key in steps else {}
        spent = catalogue.together((spent, _spent(round, counted=counted), trained))
        found.append(replace(round, spent=spent))
    return found


def _evaluations(reader: Reader, rows: Sequence[RoundRow]) -> dict[Key, dict[str, Summary]]:
    """Return the scores by round; that from which a new epoch goes on may have been tested again in it."""
    found = reader.evaluations()
    again = [(row.epoch, row.number) for row in rows if row.epoch and not row.cohort]
    for row in rows:
        if row.stands:
            for key in again:
                if key[1] == row.number and key in found:
                    found.setdefault((row.epoch, row.number), {}).update(found[key])
    return found


def _spent(round: RoundHistory, *, counted: bool) -> dict[str, float]:
    """Return what a round has cost; `counted`: the server's operations are known of all that were committed.

    One that was given up, or asked all once more, has clients' operations and none of the server's.
    """
    costs = {name: cost for name, cost in round.costs.items() if not catalogue.is_highest(name)}
    costs |= {"seconds": round.seconds, "bytes": round.bytes}
    costs |= {} if round.energy_j is None else {"energy_j": round.energy_j}
    if counted and "flops" in costs:
        costs[ALL_FLOPS] = costs["flops"] + round.values.get("server_flops", 0.0)
    costs |= {} if round.simulated_s is None else {SIMULATED: round.simulated_s}
    return {name: float(cost) for name, cost in costs.items()}


def _clients(reader: Reader, events: Sequence[Event]) -> tuple[Client, ...]:
    costs, verdicts, scores = reader.totals("client"), reader.verdicts("client"), reader.last_scores()
    joined, ready = _last(events, "client_joined"), _last(events, "client_ready")
    return tuple(
        Client(
            seat=seat,
            name=name,
            samples=samples,
            costs=costs.get(seat, {}),
            verdicts=verdicts.get(seat, {}),
            scores=scores.get(seat, {}),
            device=joined.get(name, {}),
            classes=tuple(ready.get(name, {}).get("classes", ())),
        )
        for seat, name, samples in reader.seats()
    )


def _last(events: Sequence[Event], name: str) -> dict[str, dict[str, Any]]:
    """Return what the last event of that name says of each client."""
    found = [event for event in events if event.name == name]
    return {
        str(event.fields.get("client")): {
            key: value for key, value in event.fields.items() if key != "client"
        }
        for event in found
    }
