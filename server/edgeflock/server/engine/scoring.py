"""Tests of models: of the server's own in threads, and of clients' own, which come with their updates."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.scores import DEVICES, GLOBAL, GLOBAL_TRAIN, ClientScore, Score, Summary
from edgeflock.common.tasks.kit.marking import Marking
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import ServerHalf, State
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.core.effects import Announce, TestModel
from edgeflock.server.core.events import Tested, TestFailed
from edgeflock.server.core.testing import Tests, evaluated
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import Threads
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.journal.journal import Evaluation, Journal
from edgeflock.server.learning.evaluator import Evaluator, Testers
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()
Run = Callable[[], Mapping[str, Summary]]


class Scoring:
    """Tests models of every k-th round in threads of its own while the next rounds go on.

    What a model does is foreign code: whatever it raises is said in words, and ends nothing by itself.
    """

    def __init__(
        self,
        testers: Testers | None,
        tests: Tests,
        time_line: RoundTimes,
        threads: Threads,
        marking: Marking,
    ) -> None:
        self.tests, self.marking = tests, marking
        self.took_s = 0.0  # the last `take`
        self._testers, self._time_line, self._threads = testers, time_line, threads
        self._taken: dict[TestModel, Run] = {}

    def take(self, round: int, learner: Learner, *, last: bool = False) -> list[TestModel]:
        """Copy what is to be tested beside the next rounds; return the tests.

        Called in the arithmetic thread, before the state moves on; waits for tests of before.
        """
        began, tests = time.monotonic(), self.tests.of(round, last=last) if self._testers else []
        for test in tests:
            if test not in self._taken:  # or else a commit is tried again
                self._taken[test] = self._take(test, learner.half, learner.state)
        self.took_s = time.monotonic() - began
        return tests

    def _take(self, test: TestModel, half: ServerHalf[Any], state: State) -> Run:
        """Return what is to be called exactly once, in any thread, with copies of all that it needs."""
        assert self._testers is not None  # only what can be tested is asked for
        if GLOBAL in test.models:
            return _result(self._testers, half, state, self.marking)
        return _others(self._testers, half, state, test.models, self.marking)

    async def test(
        self, test: TestModel, learner: Learner, checkpoints: Checkpoints, journal: Journal
    ) -> Tested | TestFailed:
        """Test what a round's commit has taken, or else its state as it is, here or on the disk."""
        try:
            if test not in self._taken:
                digests = await asyncio.wrap_future(journal.ask(lambda past: past.digests(test.round)))
                await self._threads.compute(self._take_again, test, learner, checkpoints, digests)
            began, run = time.monotonic(), self._taken.pop(test)
            scores = await self._threads.evaluate(run)
        except Exception as error:
            return TestFailed(test.round, _in_words(error), time.monotonic(), test.models)
        if not self.tests.blocking:
            self._time_line.add(test.round, "evaluate_busy", time.monotonic() - began)
        return Tested(test.round, tuple(scores.items()), time.monotonic(), test.models)

    def _take_again(
        self, test: TestModel, learner: Learner, checkpoints: Checkpoints, digests: tuple[str, str] | None
    ) -> None:
        state = learner.state_after(test.round, checkpoints, digests)
        self._taken[test] = self._take(test, learner.half, state)


def _result(testers: Testers, half: ServerHalf[Any], state: State, marking: Marking) -> Run:
    """Copy the global model, if it is a whole one."""
    if not half.has_global:
        return dict
    evaluator = testers.result
    evaluator.hold()
    try:
        evaluator.load(half.result(state), half.buffers(state, GLOBAL))
    except BaseException:
        evaluator.release()
        raise
    return _released(evaluator, lambda: {GLOBAL: marking.summarise([evaluator.score(testers.test)])})


def _others(
    testers: Testers, half: ServerHalf[Any], state: State, models: Collection[str], marking: Marking
) -> Run:
    """Copy what the method's other models are made of, and the global one for the training data."""
    evaluator = testers.others
    assert evaluator is not None
    evaluator.hold()
    try:
        names = half.made_of(state) if {*models} - {GLOBAL_TRAIN} else ()
        parts = State({name: state.vectors[name].clone() for name in names}, dict(state.scalars))
        trained = GLOBAL_TRAIN in models and testers.train is not None
        result = (half.result(state).clone(), half.buffers(state, GLOBAL).clone()) if trained else None
    except BaseException:
        evaluator.release()
        raise

    def run() -> dict[str, Summary]:
        found = defaultdict[str, list[Score]](list)
        if names:
            for name, vector in half.models(parts):
                if name in models:
                    evaluator.load(vector, half.buffers(parts, name))
                    found[name].append(evaluator.score(testers.test))
        if result is not None and testers.train is not None:
            evaluator.load(*result)
            found[GLOBAL_TRAIN].append(evaluator.score(testers.train))
        return {name: marking.summarise(scores) for name, scores in found.items()}

    return _released(evaluator, run)


def _released(evaluator: Evaluator, run: Run) -> Run:
    """Return the same, with the evaluator given back at its end."""

    def whole() -> Mapping[str, Summary]:
        try:
            return run()
        finally:
            evaluator.release()

    return whole


def _in_words(error: Exception) -> str:
    """Return what a test raised, in a line."""
    words = " ".join(str(error).split())[:300]
    ours = isinstance(error, EdgeflockError)  # a sentence
    return words if ours else f"{type(error).__name__}: {words}" if words else type(error).__name__


@dataclass(frozen=True)
class ClientScores:
    """The scores of the counted members of one round, by seat and name: of their own models, and apart from
    these of the model of the round before, as they received it."""

    marking: Marking
    by_seat: Mapping[int, Mapping[str, Score]]
    received: Mapping[int, Score]

    @classmethod
    def of(
        cls, marking: Marking, told: Mapping[int, Sequence[ClientScore]], outcomes: Iterable[Outcome]
    ) -> ClientScores:
        """Keep those of the members whose update counts."""
        counted = [item.seat for item in outcomes if item.verdict is Verdict.COUNTED]
        every = {
            seat: {one.model: marking.of_client(one) for one in told[seat]}
            for seat in counted
            if told.get(seat)
        }
        own = {
            seat: {name: one for name, one in mine.items() if name != DEVICES} for seat, mine in every.items()
        }
        received = {seat: mine[DEVICES] for seat, mine in every.items() if DEVICES in mine}
        return cls(marking, {seat: mine for seat, mine in own.items() if mine}, received)

    def summaries(self) -> dict[str, Summary]:
        """Return how each kind of model does over all that were tested."""
        names = sorted({name for mine in self.by_seat.values() for name in mine})
        groups = {name: [mine[name] for mine in self.by_seat.values() if name in mine] for name in names}
        return {name: self.marking.summarise(group) for name, group in groups.items()}

    def before(self, name: str) -> Evaluation | None:
        """Return how the model of the round before does, under that name; None if nobody has tested it."""
        if not self.received:
            return None
        found = self.marking.pooled([self.received[seat] for seat in sorted(self.received)])
        return Evaluation(name, found, {seat: {DEVICES: one} for seat, one in self.received.items()})

    def announcements(self, round: int, before: Evaluation | None = None) -> list[Announce]:
        """Return what is said of them, once they are durable."""
        figure = self.marking.figure
        said = [] if before is None else [evaluated(round - 1, before.model, before.found, figure)]
        return [*said, *(evaluated(round, name, found, figure) for name, found in self.summaries().items())]
