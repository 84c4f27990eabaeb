"""When models are tested, and what becomes of the scores: journal, best round, the target of the run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from edgeflock.common.errors import JournalBroken
from edgeflock.common.scores import Score, Summary, summarise
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.core.effects import Announce
from edgeflock.server.costs.target import Target
from edgeflock.server.costs.time_line import EVALUATE, RoundTimes
from edgeflock.server.engine.loop import Threads
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.past import Scored
from edgeflock.server.learning.evaluator import Evaluator
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()
GLOBAL = "global"  # the model that targets and curves mean


@dataclass(frozen=True)
class Tests:
    """What is tested and when, and the score that ends the run."""

    __test__ = False  # not a pytest class

    every: int  # rounds; 0: never
    last: int  # the last round of training
    blocking: bool = False  # the next round waits for the test
    clients: tuple[str, ...] = ()  # what clients test their own models on
    target: Target = field(default_factory=Target)

    def includes(self, round: int) -> bool:
        return self.every > 0 and (round % self.every == 0 or round == self.last)

    def wishes(self, round: int, *, last: bool) -> tuple[str, ...]:
        """Return what clients are asked to test their own models on in a round."""
        return self.clients if self.includes(round) or (last and self.every) else ()


@dataclass(frozen=True)
class _Taken:
    """What is to be told of a round: scores that are there, and the test that is not run yet."""

    round: int
    others: dict[str, Summary]  # of the method's other models
    run: Callable[[], Score] | None  # of the result, if that is a whole model


class Scoring:
    """Evaluates every k-th round in a thread of its own while the next round goes on."""

    def __init__(
        self,
        evaluator: Evaluator | None,
        tests: Tests,
        scored: Scored,
        *,
        journal: Journal,
        time_line: RoundTimes,
        threads: Threads,
    ) -> None:
        self.tests = tests
        self.took_s = 0.0  # the last `take`
        self._evaluator, self._journal = evaluator, journal
        self._time_line, self._threads = time_line, threads
        self._best, self._newest = scored.best, scored.newest
        self._accuracies = dict(scored.accuracies)  # of the newest rounds, once the journal holds them
        self._taken: _Taken | None = None
        self._running: dict[int, asyncio.Task[None]] = {}

    def knows(self, round: int) -> bool:
        """Whether that round was tested in a life before."""
        return self._newest >= round

    def take(self, round: int, learner: Learner, *, last: bool = False) -> None:
        """Copy the global model, to be tested beside the next round; test a method's other models at once.

        Called in the arithmetic thread, before the state moves on.
        """
        began, self.took_s = time.monotonic(), 0.0
        if self._evaluator is None or not (self.tests.includes(round) or last) or self._taken is not None:
            return
        half, state, others = learner.half, learner.state, defaultdict[str, list[Score]](list)
        for name, vector in learner.models():
            others[name].append(self._evaluator.load(vector, half.buffers(state, name))())
        found = {name: summarise(scores) for name, scores in others.items()}
        test = None
        if half.has_global:
            test = self._evaluator.load(learner.result(), half.buffers(state, GLOBAL))
        self._taken = _Taken(round, found, test)
        self.took_s = time.monotonic() - began

    async def begin(self, round: int) -> None:
        """Start the test of what was taken, now that the round is durable; wait for it if asked to."""
        if self._taken is None:
            return
        taken, self._taken = self._taken, None
        task = asyncio.create_task(self._score(taken))
        self._running[round] = task
        task.add_done_callback(lambda _: self._running.pop(round, None))
        if self.tests.blocking:
            with self._time_line.instead(EVALUATE):
                await task

    async def settled(self, round: int) -> str:
        """Wait for the test of that round, if it runs; return why the run ends with it, if it does."""
        if round in self._running:
            await asyncio.wait([self._running[round]])
        return self.tests.target.reached(round, self._accuracies.get(round))

    def wanted(self) -> set[int]:
        """Rounds whose checkpoints must stay: the best one, and those being tested."""
        return {*self._running, *([self._best[1]] if self._best else [])}

    async def finish(self) -> None:
        """Wait for the tests that run."""
        if self._running:
            await asyncio.wait(list(self._running.values()))

    async def _score(self, taken: _Taken) -> None:
        found = dict(taken.others)
        if taken.run is not None:
            began = time.monotonic()
            score = await self._threads.evaluate(taken.run)
            if not self.tests.blocking:
                self._time_line.add(taken.round, "evaluate_busy", time.monotonic() - began)
            if self._best is None or score.accuracy > self._best[0]:
                self._best = (score.accuracy, taken.round)
            found[GLOBAL] = summarise([score])
        for name, summary in found.items():
            await self._publish(taken.round, name, summary)

    async def _publish(self, round: int, model: str, found: Summary) -> None:
        said = evaluated(round, model, found)
        log.info(said.name, **said.fields)
        with contextlib.suppress(JournalBroken):  # the next decision meets the same trouble, and handles it
            await asyncio.wrap_future(self._journal.score(round, model, found, said))
            if model == GLOBAL:
                self._accuracies[round] = found.accuracy
                for old in [number for number in self._accuracies if number < round - 1]:
                    del self._accuracies[old]


@dataclass(frozen=True)
class ClientScores:
    """The scores of the counted members of one round, by seat and name."""

    by_seat: Mapping[int, Mapping[str, Score]]

    @classmethod
    def of(cls, scores: Mapping[int, Mapping[str, Score]], outcomes: Iterable[Outcome]) -> ClientScores:
        """Keep those of the members whose update counts."""
        counted = [item.seat for item in outcomes if item.verdict is Verdict.COUNTED]
        return cls({seat: scores[seat] for seat in counted if scores.get(seat)})

    def summaries(self) -> dict[str, Summary]:
        """Return how each kind of model does over all that were tested."""
        names = sorted({name for mine in self.by_seat.values() for name in mine})
        groups = {name: [mine[name] for mine in self.by_seat.values() if name in mine] for name in names}
        return {name: summarise(group) for name, group in groups.items()}

    def announcements(self, round: int) -> list[Announce]:
        """Return what is said of them, once they are durable."""
        return [evaluated(round, name, found) for name, found in self.summaries().items()]


def evaluated(round: int, model: str, found: Summary) -> Announce:
    """Return what is said of an evaluation."""
    fields: dict[str, object] = {"round": round, "model": model}
    fields |= {"accuracy": found.accuracy, "loss": found.loss}
    if found.members == 1 and model == GLOBAL:
        return Announce("evaluated", fields)
    group = {"members": found.members, "deviation": found.deviation, "worst_tenth": found.worst_tenth}
    return Announce("evaluated", fields | group)
