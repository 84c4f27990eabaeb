"""When the global model is evaluated, and what becomes of the scores: journal, best round."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from edgeflock.common.errors import JournalBroken
from edgeflock.common.scores import Score, Summary, summarise
from edgeflock.server.core.effects import Announce
from edgeflock.server.engine.pools import started_pool
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.evaluator import Evaluator
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()


GLOBAL = "global"  # the model that targets and curves mean


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
        journal: Journal,
        *,
        every: int,
        blocking: bool,
        last: int,
        best: tuple[float, int] | None,
        scored: int,
        clients: tuple[str, ...] = (),
    ) -> None:
        self.blocking = blocking
        self.busy: Callable[[int, float], None] = lambda round, seconds: None  # told of tests beside a round
        self.took_s = 0.0  # the last `take`
        self.best = best  # accuracy, round
        self.accuracies: dict[int, float] = {}  # of the newest rounds, once the journal holds them
        self.listener: Callable[[int], None] = lambda round: None  # called for each of these
        self._evaluator, self._journal = evaluator, journal
        self._every, self._last = every, last
        self._clients = clients  # what clients test their own models on
        self._scored = scored  # the newest round whose score is in the journal
        self._thread = started_pool(1, "evaluation")
        self._taken: _Taken | None = None
        self._running: dict[int, asyncio.Task[None]] = {}

    def due(self, round: int) -> bool:
        return self._every > 0 and (round % self._every == 0 or round == self._last)

    def wishes(self, round: int, *, last: bool) -> tuple[str, ...]:
        """Return what clients are asked to test their own models on in a round."""
        return self._clients if self.due(round) or (last and self._every) else ()

    def knows(self, round: int) -> bool:
        return self._scored >= round

    def take(self, round: int, learner: Learner, *, last: bool = False) -> None:
        """Copy the global model, to be tested beside the next round; test a method's other models at once.

        Called in the arithmetic thread, before the state moves on.
        """
        began, self.took_s = time.monotonic(), 0.0
        if self._evaluator is None or not (self.due(round) or last) or self._taken is not None:
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

    async def started(self, round: int) -> None:
        """Start the test of what was taken, now that the round is durable; wait for it if asked to."""
        if self._taken is None:
            return
        taken, self._taken = self._taken, None
        task = asyncio.create_task(self._score(taken))
        self._running[round] = task
        task.add_done_callback(lambda _: self._running.pop(round, None))
        if self.blocking:
            await task

    async def settled(self, round: int) -> None:
        """Wait for the test of that round, if it runs."""
        if round in self._running:
            await asyncio.wait([self._running[round]])

    def wanted(self) -> set[int]:
        """Rounds whose checkpoints must stay: the best one, and those being tested."""
        return {*self._running, *([self.best[1]] if self.best else [])}

    async def finish(self) -> None:
        """Wait for the tests that run."""
        if self._running:
            await asyncio.wait(list(self._running.values()))

    async def close(self) -> None:
        await self.finish()
        self._thread.shutdown()

    async def _score(self, taken: _Taken) -> None:
        found = dict(taken.others)
        if taken.run is not None:
            began = time.monotonic()
            score = await asyncio.get_running_loop().run_in_executor(self._thread, taken.run)
            if not self.blocking:
                self.busy(taken.round, time.monotonic() - began)
            if self.best is None or score.accuracy > self.best[0]:
                self.best = (score.accuracy, taken.round)
            found[GLOBAL] = summarise([score])
        for name, summary in found.items():
            await self._publish(taken.round, name, summary)
        if taken.round in self.accuracies:
            self.listener(taken.round)

    async def _publish(self, round: int, model: str, found: Summary) -> None:
        said = told(round, model, found)
        log.info(said.name, **said.fields)
        with contextlib.suppress(JournalBroken):  # the next decision meets the same trouble, and handles it
            await asyncio.wrap_future(self._journal.score(round, model, found, said))
            if model == GLOBAL:
                self.accuracies[round] = found.accuracy
                for old in [number for number in self.accuracies if number < round - 1]:
                    del self.accuracies[old]


def told(round: int, model: str, found: Summary) -> Announce:
    """Return what is said of an evaluation."""
    fields = {"round": round, "model": model, "accuracy": found.accuracy, "loss": found.loss}
    if found.members == 1 and model == GLOBAL:
        return Announce("evaluated", fields)
    group = {"members": found.members, "deviation": found.deviation, "worst_tenth": found.worst_tenth}
    return Announce("evaluated", fields | group)
