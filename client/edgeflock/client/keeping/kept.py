"""What is kept of one client in one run: the update that is not settled, and the method's state it leads to.

The two belong together: the candidate state is there before its update is, and both move by the final word.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from edgeflock.client.costs import TrainCost
from edgeflock.client.deciding.session import Generation
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.keeping.store import Store
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.pack import Packed
from edgeflock.methods.kit.values import State


class Kept:
    """State and update of one client in one run, on the device's disk."""

    def __init__(self, client_id: str, folder: Path, run_id: str) -> None:
        self.run_id = run_id
        self.staged: Generation | None = None  # of an update that is torn: its candidate, which is whole
        self.lost: Generation | None = None  # of an update that was dropped because its candidate is torn
        self._store = Store(folder, run_id)
        self._outbox = Outbox(folder)
        self._log = structlog.get_logger(__name__).bind(client_id=client_id)

    @property
    def entry(self) -> OutboxEntry | None:
        """The update that is not settled."""
        return self._outbox.entry

    def check(self) -> None:
        """Keep only an update of this run whose candidate state is there."""
        entry = self._outbox.entry
        if entry is None:
            self.staged = self._store.candidate()
        elif entry.run_id != self.run_id:
            self.drop(f"it belongs to run {entry.run_id}, the server has run {self.run_id}")
        elif entry.candidate and not self._store.staged(entry.generation):
            self.drop("its state is torn: the round is trained again")
            self.lost = entry.generation
        else:
            self.staged = self.lost = None

    def put(self, description: Description, cost: TrainCost, packed: Packed, state: State | None) -> None:
        """Keep an update, and the state that is the client's if it counts (None: as it was).

        When this returns both are there, whole, whatever happens to the process.
        """
        generation = Generation(description.round, description.package.digest)
        candidate = self._store.stage(state, generation)
        self._outbox.put(OutboxEntry(self.run_id, description, cost, candidate, packed.marks), packed.pieces)
        self.staged = self.lost = None

    def open_payload(self) -> int:
        """Return a descriptor of the update's payload; the caller closes it."""
        return self._outbox.open_payload()

    def settle(self, *, counted: bool) -> OutboxEntry | None:
        """Move the state by the final word, then forget the update, which is returned; a crash in between
        repeats both."""
        entry = self._outbox.entry
        if counted and (entry.candidate if entry else self.staged):
            self._store.promote()
        else:
            self._store.discard()
        self._outbox.clear()
        self.staged = None
        return entry

    def drop(self, reason: str) -> None:
        """Forget an update that can never count."""
        if self._outbox.entry is not None:
            self._log.warning("outbox_discarded", round=self._outbox.entry.round, reason=reason)
            self._outbox.clear()

    # ------------------------------------------------------------------------------- the state

    def generations(self) -> tuple[Generation, ...]:
        """Return the states that are kept, oldest first."""
        return self._store.generations()

    def load(self) -> State:
        """Return the newest state, or an empty one."""
        return self._store.load()

    def rewind(self, keep: int | None) -> bool:
        """Drop every state later than that round, or all; return whether there was one."""
        later = any(keep is None or kept.round > keep for kept in self._store.generations())
        self._store.rewind(keep)
        return later

    def forget(self, round: int) -> None:
        """An update counted whose candidate is torn: what is kept is behind what the server has counted."""
        self._store.forget(f"the update of round {round} counted, the state after it is torn")
        self.lost = None

    def epoch(self) -> int | None:
        """Return the server's epoch that the state was last compared with."""
        return self._store.epoch()

    def set_epoch(self, epoch: int) -> None:
        self._store.set_epoch(epoch)
