"""Results: the run's models as devices fetch them to keep, at its end or whenever one is the best so far."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass

from edgeflock.common.errors import CorruptCheckpoint, JournalBroken
from edgeflock.server.core.decisions import EndingKind
from edgeflock.server.core.run import RunMachine
from edgeflock.server.engine.means import Means
from edgeflock.server.files.packages import Broadcast

FINAL, BEST = "final", "best"  # what a client may ask for
_MOST = 8  # packages of clients' own results that are kept open


@dataclass(frozen=True)
class Offer:
    """A model that a client may fetch."""

    round: int  # after which it is
    best: bool  # the best so far; else the run's final one


def offered(machine: RunMachine, saves: str) -> Offer | None:
    """Return the model that a client may fetch which has asked for that kind, if there is one yet."""
    if saves == BEST and machine.testing.best is not None:
        return Offer(machine.testing.best[1], best=True)
    over = machine.ending is not None and machine.ending.kind is not EndingKind.FAILED
    return (
        Offer(machine.committed, best=False)
        if saves in (FINAL, BEST) and over and machine.committed
        else None
    )


class Results:
    """Packages of models, each written when it is first asked for."""

    def __init__(self, machine: RunMachine, means: Means) -> None:
        self._machine, self._means = machine, means
        self._made: dict[tuple[int, int], Broadcast | None] = {}
        self._making = asyncio.Lock()
        self.moved_at = 0.0  # when something of one was last sent

    async def package(self, round: int, seat: int) -> Broadcast | None:
        """Return the model after that round for a client, if it is one that is offered.

        Raises OSError if the disk will not hold it now.
        """
        if not self._is_offered(round):
            return None
        key = (round, seat if self._means.learner.forms_own_results else -1)
        async with self._making:
            if key not in self._made:
                self._made[key] = await self._make(round, seat)
                while len(self._made) > _MOST:
                    del self._made[next(iter(self._made))]
            return self._made[key]

    async def base(self, round: int) -> Broadcast | None:
        """Return what is frozen of the model, for who is offered it and has never trained."""
        return await self._means.threads.compute(self._write_base) if self._is_offered(round) else None

    def _is_offered(self, round: int) -> bool:
        offers = (offered(self._machine, saves) for saves in (FINAL, BEST))
        return any(one is not None and one.round == round for one in offers)

    async def _make(self, round: int, seat: int) -> Broadcast | None:
        means = self._means
        try:
            digests = await asyncio.wrap_future(means.journal.ask(lambda past: past.digests(round)))
            return await means.threads.compute(self._write, round, seat, digests)
        except (CorruptCheckpoint, JournalBroken):
            return None

    def _write(self, round: int, seat: int, digests: tuple[str, str] | None) -> Broadcast | None:
        """Write the package, in the thread that owns the state."""
        means, path = self._means, f"{self._means.files.spool.root}/result.package"
        os.makedirs(means.files.spool.root, exist_ok=True)
        try:
            state = means.learner.state_after(round, means.files.checkpoints, digests)
            return means.learner.keepsake(state, seat, path)
        finally:
            with contextlib.suppress(OSError):  # what is open stays readable
                os.unlink(path)

    def _write_base(self) -> Broadcast | None:
        path = f"{self._means.files.spool.root}/base.package"
        try:
            return self._means.learner.based(path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def sent(self, size: int) -> None:
        """So many bytes of one are on their way; they are no cost of a round."""
        self.moved_at = time.monotonic()
        self._means.bookkeeping.sent_result(self._machine.round or 1, size)
