"""When the global model is evaluated, and what becomes of the scores: journal, best round."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from edgeflock.server.evaluate import Evaluator, Score
from edgeflock.server.journal import Journal, write_event
from edgeflock.server.learner import Learner

log = structlog.get_logger()


class Scoring:
    """Evaluates every k-th round in a thread of its own while the next round goes on."""

    def __init__(
        self,
        evaluator: Evaluator | None,
        journal: Journal,
        *,
        epoch: int,
        every: int,
        blocking: bool,
        last: int,
        best: tuple[float, int] | None,
    ) -> None:
        self._blocking = blocking
        self.best = best  # accuracy, round
        self._evaluator, self._journal, self._epoch = evaluator, journal, epoch
        self._every, self._last = every, last
        self._thread = ThreadPoolExecutor(1, "evaluation")
        self._taken: tuple[int, Callable[[], Score]] | None = None
        self._running: dict[int, asyncio.Task[None]] = {}

    def due(self, round: int) -> bool:
        return self._every > 0 and (round % self._every == 0 or round == self._last)

    def take(self, round: int, learner: Learner) -> None:
        """Copy the model to be tested; called in the arithmetic thread, before the state moves on."""
        if self._evaluator is not None and self.due(round) and self._taken is None:
            self._taken = (round, self._evaluator.load(learner.result(), learner.state.vectors["buffers"]))

    async def started(self, round: int) -> None:
        """Start the test of what was taken, now that the round is durable; wait for it if asked to."""
        if self._taken is None:
            return
        (round, run), self._taken = self._taken, None
        task = asyncio.create_task(self._score(round, run))
        self._running[round] = task
        task.add_done_callback(lambda _: self._running.pop(round, None))
        if self._blocking:
            await task

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

    async def _score(self, round: int, run: Callable[[], Score]) -> None:
        score = await asyncio.get_running_loop().run_in_executor(self._thread, run)
        if self.best is None or score.accuracy > self.best[0]:
            self.best = (score.accuracy, round)
        fields = {"round": round, "model": "global", "accuracy": score.accuracy, "loss": score.loss}
        log.info("evaluated", **fields)
        await asyncio.wrap_future(
            self._journal.submit(lambda connection: self._write(connection, fields, score))
        )

    def _write(self, connection: sqlite3.Connection, fields: dict[str, object], score: Score) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO evaluations (epoch, round, model, accuracy, loss, samples) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (self._epoch, fields["round"], fields["model"], score.accuracy, score.loss, score.samples),
        )
        write_event(connection, "evaluated", fields)
