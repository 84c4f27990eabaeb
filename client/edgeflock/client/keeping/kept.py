"""What is kept of one client in one run: the update that is not settled, and the method's state it leads to.

The two belong together: the candidate state is there before its update is, and both move by the final word.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import structlog
from torch import Tensor

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping import statefile
from edgeflock.client.keeping.files import make_folder, replace_file
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.keeping.store import Store
from edgeflock.client.protocol import Extent, Generation
from edgeflock.common.errors import CorruptState
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.pack import Packed
from edgeflock.methods.kit.values import State

_BASE = "base"


class Kept:
    """State and update of one client in one run, on the device's disk."""

    def __init__(self, client_id: str, folder: Path, run_id: str) -> None:
        self.run_id = run_id
        self.epoch = 0  # of the run, as the server says
        self._store = Store(folder, run_id)
        self._outbox = Outbox(folder)
        self._folder = folder
        self._log = structlog.get_logger(__name__).bind(client_id=client_id)

    @property
    def entry(self) -> OutboxEntry | None:
        """The update that is not settled."""
        return self._outbox.entry

    @property
    def is_former(self) -> bool:
        """Whether the update was made before the server went back to an older state."""
        return self.entry is not None and self.entry.epoch not in (None, self.epoch)

    def check(self) -> None:
        """Keep only an update of this run whose candidate state is there."""
        entry = self._outbox.entry
        if entry is None:
            return
        if entry.run_id != self.run_id:
            self.drop(f"it belongs to run {entry.run_id}, the server has run {self.run_id}")
        elif entry.candidate and not self._store.staged(entry.generation):
            self.drop("its state is torn: the round is trained again")

    def put(self, description: Description, cost: TrainCost, packed: Packed, state: State | None) -> None:
        """Keep an update, and the state that is the client's if it counts (None: as it was).

        When this returns both are there, whole, whatever happens to the process.
        """
        moved = self._store.stage(state, Generation(description.round, description.package.digest))
        description = replace(description, moved=moved)
        entry = OutboxEntry(self.run_id, description, cost, packed.marks, self.epoch)
        self._outbox.put(entry, packed.pieces)

    def open_payload(self) -> int:
        """Return a descriptor of the update's payload; the caller closes it."""
        return self._outbox.open_payload()

    def settle(self, counted: Generation | None) -> OutboxEntry | None:
        """Move the state by the final word, None: nothing counted; then forget the update, which is returned.

        A crash in between repeats both.
        """
        entry = self._outbox.entry
        if counted is not None and (entry is None or entry.candidate):
            self._store.promote(counted)
        else:
            self._store.discard()
        self._outbox.clear()
        return entry

    def drop(self, reason: str) -> None:
        """Forget an update that can never count."""
        if self._outbox.entry is not None:
            self._log.warning("outbox_discarded", round=self._outbox.entry.round, reason=reason)
            self._outbox.clear()

    # ------------------------------------------------------------------------------- the model's base

    def base(self, digest: bytes) -> Tensor | None:
        """Return the frozen part of that digest, if this client or another of the device has fetched it."""
        try:
            state, said = statefile.read(self._base_file(digest))
        except (CorruptState, OSError):
            return None
        return state.vectors.get(_BASE) if said.digest == digest else None

    def keep_base(self, digest: bytes, numbers: Tensor) -> None:
        """Keep the frozen part, in place of any other; what a power cut tears of it is fetched again."""
        file = self._base_file(digest)
        spare = file.with_name("spare")
        try:
            make_folder(file.parent)
            statefile.write(spare, State({_BASE: numbers}), Generation(0, digest))
            spare.replace(file)
            for other in file.parent.iterdir():
                if other != file:
                    other.unlink(missing_ok=True)
        except OSError as error:  # it is fetched again after the next start
            self._log.warning("base_not_kept", reason=error.strerror or str(error))

    def _base_file(self, digest: bytes) -> Path:
        """It lies beside the clients' folders: those of one device share it."""
        return self._folder.parents[1] / _BASE / f"{digest.hex()}.safetensors"

    # ------------------------------------------------------------------------------- the data

    def extent(self, round: int) -> Extent | None:
        """Return which own data that round was begun with, if this client has noted it."""
        try:
            found = json.loads(self._extent_file.read_text("utf-8"))
            extent = Extent(int(found["round"]), int(found["samples"]), str(found["digest"]))
        except (OSError, ValueError, KeyError, TypeError):  # what is torn says nothing
            return None
        return extent if extent.round == round else None

    def keep_extent(self, extent: Extent) -> None:
        """Note with which own data a round begins."""
        replace_file(self._extent_file, json.dumps(asdict(extent)).encode())

    @property
    def _extent_file(self) -> Path:
        return self._folder / "runs" / self.run_id / "data.json"

    # ------------------------------------------------------------------------------- the state

    def generations(self) -> tuple[Generation, ...]:
        """Return the states that are kept, oldest first."""
        return self._store.generations()

    @property
    def candidate(self) -> Generation | None:
        """After which update there is a candidate state, whole."""
        return self._store.candidate

    @property
    def forgotten(self) -> Generation | None:
        """The state that is known to be lost."""
        return self._store.forgotten

    def load(self) -> State:
        """Return the newest state, or an empty one."""
        return self._store.load()

    def rewind(self, keep: int) -> bool:
        """Drop every state later than that round, all with 0; return whether there was one."""
        later = any(kept.round > keep for kept in self._store.generations())
        self._store.rewind(keep)
        return later

    def forget(self, update: Generation) -> None:
        """The state after that counted update is not here: start afresh."""
        self._store.forget(update)
