"""The values of a run's history: rounds, clients, evaluations, and what they have cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.feed import Event

GLOBAL = "global"  # the model that targets and curves mean
COMPLETED = "completed"  # how a run ended as it should
# The server's exclusive time line: only these add up to its wall time.
TIME_LINE = ("select_s", "open_s", "fold_s", "commit_s", "evaluate_s", "paused_s")
_MEASURED = "measured "  # before the names of costs that a method was told

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """How the models of one name did in a round; of several, means over them."""

    accuracy: float
    loss: float
    samples: int
    members: int = 1
    deviation: float = 0.0
    worst_tenth: float = 0.0


@dataclass(frozen=True)
class Client:
    """One client over the whole run."""

    index: int
    name: str
    samples: int | None
    costs: Numbers  # sums over all rounds; of peaks and temperatures the largest
    verdicts: Mapping[str, int]  # how often each was given
    scores: Mapping[str, Evaluation]  # of its own model, by name, in its last test
    device: Mapping[str, Any]  # as it said at its last Join: machine, system, cores, software ...
    classes: tuple[int, ...] = ()  # its samples of each class, as it said; empty: it did not


@dataclass(frozen=True)
class RoundHistory:
    """One round."""

    epoch: int
    number: int
    closing: str  # why training was over; empty: a round of training
    committed: bool
    cohort: tuple[int, ...]  # seats, those that were added too
    verdicts: Mapping[str, int]  # how many members got each
    values: Numbers  # of the method and of the server, as in round_costs
    costs: Numbers  # sums over the clients; of peaks and temperatures the largest
    evaluations: Mapping[str, Evaluation]  # by model
    spent: Numbers  # seconds, bytes and other costs of the run up to the end of this round
    opened: bool = True  # False: a budget ended the run before, but to find that took time

    @property
    def time_line(self) -> Numbers:
        """Seconds of the server in this round; they exclude each other."""
        return {name: self.values[name] for name in TIME_LINE if name in self.values}

    @property
    def metrics(self) -> Numbers:
        """What the method says of the round: loss, tau, norm_ratio ..."""
        told = {name: value for name, value in self.values.items() if not name.startswith(_MEASURED)}
        return {name: value for name, value in told.items() if not _is_cost(name)}

    @property
    def seconds(self) -> float:
        return sum(self.time_line.values())

    @property
    def bytes(self) -> float:
        """Payload of all clients, both ways."""
        return self.costs.get("bytes_down", 0.0) + self.costs.get("bytes_up", 0.0)

    @property
    def energy_j(self) -> float | None:
        """Energy of clients and server, None where nobody told of any."""
        found = [cost["energy_j"] for cost in (self.costs, self.values) if "energy_j" in cost]
        return sum(found) if found else None


@dataclass(frozen=True)
class Point:
    """One evaluation, and what the run had cost by then."""

    round: int
    evaluation: Evaluation
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
    rounds: tuple[RoundHistory, ...]  # committed ones, as the run stands now; a closing round is the last
    others: tuple[RoundHistory, ...]  # discarded, open, or of an epoch that was gone back on
    events: tuple[Event, ...]
    ending: Ending | None  # None: the run is not over

    @property
    def training(self) -> tuple[RoundHistory, ...]:
        """Rounds of training: without the closing round."""
        return tuple(round for round in self.rounds if not round.closing)

    @property
    def server(self) -> Mapping[str, Any]:
        """What the server ran on and with, as it said at its last start."""
        starts = [event.fields for event in self.events if event.name == "run_started"]
        return starts[-1] if starts else {}

    def reached(self, accuracy: float, model: str = GLOBAL) -> Point | None:
        """Return the first evaluation that was at least so good."""
        return next((point for point in self.curve(model) if point.evaluation.accuracy >= accuracy), None)

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


def is_highest(name: str) -> bool:
    """Whether several of these are told by the largest: they do not add up."""
    return "peak" in name or name.endswith("_c")


def _is_cost(name: str) -> bool:
    """Whether the server measured it, and not the method."""
    return name.endswith(("_s", "_j", "_bytes", "_busy"))
