"""Tests of models: of the server's own in a thread, and of clients' own, which come with their updates."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.scores import Score, Summary, summarise
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.core.effects import Announce
from edgeflock.server.core.events import Tested, TestFailed
from edgeflock.server.core.testing import GLOBAL, Tests, evaluated
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import Threads
from edgeflock.server.learning.evaluator import Evaluator
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()


@dataclass(frozen=True)
class _Taken:
    """What is to be tested of a round: scores that are there, and the test that is not run yet."""

    round: int
    others: Mapping[str, Summary]  # of the method's other models
    run: Callable[[], Score] | None  # of the result, if that is a whole model
    failed: str = ""  # why there is nothing of that


class Scoring:
    """Tests every k-th model in a thread of its own while the next round goes on.

    What a model does is foreign code: whatever it raises is said in words, and ends nothing by itself.
    """

    def __init__(
        self, evaluator: Evaluator | None, tests: Tests, time_line: RoundTimes, threads: Threads
    ) -> None:
        self.tests = tests
        self.took_s = 0.0  # the last `take`
        self._evaluator, self._time_line, self._threads = evaluator, time_line, threads
        self._taken: _Taken | None = None

    def take(self, round: int, learner: Learner, *, last: bool = False) -> None:
        """Copy the global model, to be tested beside the next round; test a method's other models at once.

        Called in the arithmetic thread, before the state moves on.
        """
        began, self.took_s = time.monotonic(), 0.0
        known = self._taken is not None and self._taken.round == round
        if self._evaluator is None or known or not (self.tests.includes(round) or last):
            return
        self._taken = self._take(round, learner, self._evaluator)
        self.took_s = time.monotonic() - began

    def _take(self, round: int, learner: Learner, evaluator: Evaluator) -> _Taken:
        half, state, others = learner.half, learner.state, defaultdict[str, list[Score]](list)
        try:
            for name, vector in learner.models():
                others[name].append(evaluator.load(vector, half.buffers(state, name))())
            found = {name: summarise(scores) for name, scores in others.items()}
            test = evaluator.load(learner.result(), half.buffers(state, GLOBAL)) if half.has_global else None
        except Exception as error:
            return _Taken(round, {}, None, _in_words(error))
        return _Taken(round, found, test)

    async def test(self, round: int, learner: Learner) -> Tested | TestFailed:
        """Test a committed round: what its commit has taken, or else the state as it is."""
        if self._taken is None or self._taken.round != round:
            await self._threads.compute(lambda: self.take(round, learner, last=True))
        taken, self._taken = self._taken, None
        assert taken is not None  # only what can be tested is asked for
        if taken.failed:
            return TestFailed(round, taken.failed, time.monotonic())
        if taken.run is None:
            return Tested(round, tuple(taken.others.items()), time.monotonic())
        began = time.monotonic()
        try:
            score = await self._threads.evaluate(taken.run)
        except Exception as error:
            return TestFailed(round, _in_words(error), time.monotonic())
        if not self.tests.blocking:
            self._time_line.add(round, "evaluate_busy", time.monotonic() - began)
        return Tested(round, (*taken.others.items(), (GLOBAL, summarise([score]))), time.monotonic())


def _in_words(error: Exception) -> str:
    """Return what a test raised, in a line."""
    words = " ".join(str(error).split())[:300]
    ours = isinstance(error, EdgeflockError)  # a sentence
    return words if ours else f"{type(error).__name__}: {words}" if words else type(error).__name__


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
