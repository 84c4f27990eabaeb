"""The outbox: the update that is not settled yet, on disk, so that it counts exactly once or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping.files import replace_file, write_over, write_pieces
from edgeflock.client.protocol import Generation
from edgeflock.common.payload.checksum import Buffer, Marks
from edgeflock.common.payload.description import CorruptDescription, Description
from edgeflock.common.payload.package import Package

log = structlog.get_logger(__name__)

_BLOCK = 1 << 20
_NOTHING = b"\0"  # begins a description that counts no more


@dataclass(frozen=True)
class OutboxEntry:
    """One update: its description, of which run it is, and what goes with it."""

    run_id: str
    description: Description
    cost: TrainCost
    marks: Marks
    epoch: int | None = None  # of the run, when it was made; None: of before that was noted

    @property
    def candidate(self) -> bool:
        """Whether a candidate state was staged with it."""
        return bool(self.description.moved)

    @property
    def round(self) -> int:
        return self.description.round

    @property
    def package(self) -> Package:
        return self.description.package

    @property
    def generation(self) -> Generation:
        """The state that it leads to, if it counts."""
        return Generation(self.round, self.package.digest)


class Outbox:
    """Holds at most one update. The small file `meta`, written last, is the commit point.

    Nothing is fsynced: a power cut may tear an update; its checksums tell, and the round is trained again.
    Both files are made once and written over: for a small update, making, renaming and removing a file
    would be the most of the work.
    """

    def __init__(self, client_folder: Path) -> None:
        self._folder = client_folder / "outbox"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._meta = self._folder / "meta"
        self._payload = self._folder / "payload"  # kept and overwritten: fresh pages cost ten times more
        self.entry = self._load()

    def put(self, entry: OutboxEntry, pieces: Sequence[Buffer]) -> None:
        """Write an update; when this returns it is there, whole, whatever happens to the process."""
        self.clear()
        write_pieces(self._payload, pieces)
        if not write_over(self._meta, _encode(entry)):
            replace_file(self._meta, _encode(entry), lasting=False)
        self.entry = entry

    def clear(self) -> None:
        """Forget the update."""
        if self.entry is not None:
            write_over(self._meta, _NOTHING)
            self.entry = None

    def open_payload(self) -> int:
        """Return a descriptor of the payload; the caller closes it."""
        return os.open(self._payload, os.O_RDONLY | os.O_CLOEXEC)

    def _load(self) -> OutboxEntry | None:
        try:
            content = self._meta.read_bytes()
        except FileNotFoundError:
            return None
        if content.startswith(_NOTHING):
            return None
        try:
            return _decode(content, self._marks())
        except (CorruptDescription, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            log.warning("outbox_discarded", reason=f"it is torn: {error}; the round is trained again")
            write_over(self._meta, _NOTHING)
            return None

    def _marks(self) -> Marks:
        marks, block = Marks(), memoryview(bytearray(_BLOCK))
        with self._payload.open("rb", buffering=0) as file:
            while count := file.readinto(block):
                marks.add(block[:count])
        return marks


def _encode(entry: OutboxEntry) -> bytes:
    beside = {"run_id": entry.run_id, "epoch": entry.epoch, "cost": entry.cost.fields()}
    return entry.description.to_bytes(beside)


def _decode(content: bytes, marks: Marks) -> OutboxEntry:
    description, beside = Description.from_bytes(content)
    package = description.package
    if (marks.size, marks.value) != (package.size_bytes, package.crc32c):
        raise ValueError("the payload has another checksum")
    if description.moved is None:  # a version before kept it so
        description = replace(description, moved=bool(beside["candidate"]))
    cost = TrainCost.of(beside["cost"])
    return OutboxEntry(beside["run_id"], description, cost, marks, beside.get("epoch"))
