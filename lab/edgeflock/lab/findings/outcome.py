"""What came of one run: how good its model is, and what each target had cost when it was reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgeflock.common.scores import ACCURACY, Metric
from edgeflock.lab.history import History, Point, RoundHistory
from edgeflock.server.core.target import Target
from edgeflock.server.journal.reader import Event, Numbers

Life = tuple[float, float]

COSTS = ("rounds", "iterations", "simulated_s", "bytes", "seconds", "flops", "all_flops", "energy_j")


@dataclass(frozen=True)
class RunOutcome:
    """The figures of one run; None is what is not known or was not reached."""

    final: float | None  # of what the run is judged by
    best: float | None
    total: Mapping[str, float | None]  # costs of the whole run
    reached: Mapping[float, Mapping[str, float | None] | None]  # costs up to each target
    curve: tuple[Point, ...]
    models: tuple[str, ...] = ()  # that were tested
    lives: tuple[Life, ...] = ()  # of its server
    tests: float = 0.0  # share of its seconds in which models were tested while no round was open
    figure: Metric = ACCURACY  # what the run is judged by

    @property
    def members(self) -> int | None:
        """The models that the final value is the mean of; None: there is none."""
        return self.curve[-1].evaluation.members if self.curve else None

    def figures(self) -> Iterator[tuple[float | None, str, float | None]]:
        """Yield every figure as (target, name, value); those of the whole run have no target."""
        yield None, f"final_{self.figure.name}", self.final
        yield None, f"best_{self.figure.name}", self.best
        for name in COSTS:
            yield None, name, self.total.get(name)
        for target, costs in self.reached.items():
            for name in COSTS:
                yield target, name, None if costs is None else costs.get(name)


def outcome(history: History, measure: str, targets: Sequence[float], rounds: int) -> RunOutcome:
    """Return the figures of a run's first rounds, as many as were asked for."""
    kept = first_rounds(history, rounds)
    longer = any(round.number > rounds for round in history.training)
    curve = curve_of(history, measure, rounds)
    values = [point.evaluation.value for point in curve]
    trained = max((round.number for round in kept if not round.last), default=0)
    return RunOutcome(
        final=values[-1] if values else None,
        best=history.figure.best(values),
        total=_costs(trained, kept[-1].spent if longer and kept else history.total),
        reached={target: way(curve, target, trained, history.figure) for target in targets},
        curve=curve,
        models=tuple(history.models()),
        lives=tuple(lives(history.events)),
        tests=_tests(kept),
        figure=history.figure,
    )


def _tests(kept: Sequence[RoundHistory]) -> float:
    seconds = sum(round.seconds for round in kept)
    return sum(round.time_line.get("evaluate_s", 0.0) for round in kept) / seconds if seconds else 0.0


def first_rounds(history: History, rounds: int) -> list[RoundHistory]:
    """Return so many rounds of a run, and the one that closes it if it has no more."""
    longer = any(round.number > rounds for round in history.training)
    return [round for round in history.rounds if round.number <= rounds or (round.last and not longer)]


def curve_of(history: History, model: str, rounds: int) -> tuple[Point, ...]:
    """Return the evaluations of a model in so many rounds of a run."""
    numbers = {round.number for round in first_rounds(history, rounds)}
    return tuple(point for point in history.curve(model) if point.round in numbers)


def way(
    curve: Sequence[Point], target: float, trained: int, figure: Metric
) -> Mapping[str, float | None] | None:
    """Return what a run had cost at its first evaluation that was as good, None if there is none."""
    goal = Target(target, figure)
    first = next((point for point in curve if goal.met(point.evaluation.value)), None)
    return None if first is None else _costs(min(first.round, trained), first.spent)


def _costs(rounds: int, spent: Numbers) -> dict[str, float | None]:
    return {"rounds": float(rounds), **{name: spent.get(name) for name in COSTS[1:]}}


def lives(events: Sequence[Event]) -> list[Life]:
    """Return the beginning and the last word of every life of the server, in seconds since 1970."""
    found: list[Life] = []
    for event in events:
        if event.name == "run_started":
            found.append((event.at, event.at))
        elif found:
            found[-1] = (found[-1][0], event.at)
    return found


def overlap(lives: Sequence[Life]) -> bool:
    """Whether two of them were at the same time."""
    return any(later[0] < earlier[1] for earlier, later in pairwise(sorted(lives)))
