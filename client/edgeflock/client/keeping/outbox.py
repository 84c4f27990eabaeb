"""The outbox: the update that is not settled yet, on disk, so that it counts exactly once or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from edgeflock.client.keeping.statedir import replace_file
from edgeflock.client.keeping.statefile import write_pieces
from edgeflock.client.training.meter import TrainCost
from edgeflock.common.payload.checksum import Buffer, Marks, extend
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section
from edgeflock.common.scores import ClientScore

log = structlog.get_logger(__name__)

_BLOCK = 1 << 20
_NOTHING = b"\0"  # begins a description that counts no more


@dataclass(frozen=True)
class Entry:
    """One update: its package, of which round and run, and what goes with it."""

    run_id: str
    round: int
    package: Package
    samples: int
    cost: TrainCost
    candidate: bool  # a candidate state was staged with it
    marks: Marks
    scores: tuple[ClientScore, ...] = ()  # of the client's own model; they go with the header


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

    def put(self, entry: Entry, pieces: Sequence[Buffer]) -> None:
        """Write an update; when this returns it is there, whole, whatever happens to the process."""
        self.clear()
        write_pieces(self._payload, pieces)
        if not _write_over(self._meta, _encode(entry)):
            replace_file(self._meta, _encode(entry))
        self.entry = entry

    def clear(self) -> None:
        """Forget the update."""
        if self.entry is not None:
            _write_over(self._meta, _NOTHING)
            self.entry = None

    def open_payload(self) -> int:
        """Return a descriptor of the payload; the caller closes it."""
        return os.open(self._payload, os.O_RDONLY | os.O_CLOEXEC)

    def _load(self) -> Entry | None:
        try:
            content = self._meta.read_bytes()
        except FileNotFoundError:
            return None
        if content.startswith(_NOTHING):
            return None
        try:
            return _decode(content, self._marks())
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            log.warning("outbox_discarded", reason=f"it is torn: {error}; the round is trained again")
            _write_over(self._meta, _NOTHING)
            return None

    def _marks(self) -> Marks:
        marks, block = Marks(), memoryview(bytearray(_BLOCK))
        with self._payload.open("rb", buffering=0) as file:
            while count := file.readinto(block):
                marks.add(block[:count])
        return marks


def _write_over(path: Path, content: bytes) -> bool:
    """Write over the beginning of a small file in one call; return whether there is one.

    What a longer content before leaves behind its end means nothing.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if os.pwrite(descriptor, content, 0) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)
    return True


def _encode(entry: Entry) -> bytes:
    fields = {
        "run_id": entry.run_id,
        "round": entry.round,
        "samples": entry.samples,
        "candidate": entry.candidate,
        "cost": entry.cost.fields(),
        "digest": entry.package.digest.hex(),
        "crc32c": entry.package.crc32c,
        "scalars": {name: float(value).hex() for name, value in entry.package.scalars.items()},
        "sections": [_section_fields(section) for section in entry.package.sections],
        "scores": [asdict(score) for score in entry.scores],
    }
    text = json.dumps(fields).encode()
    return b"%s\n%08x\n" % (text, extend(0, text))


def _decode(content: bytes, marks: Marks) -> Entry:
    text, checksum, _ = content.split(b"\n", 2)
    if checksum != b"%08x" % extend(0, text):
        raise ValueError("the description has another checksum")
    fields = json.loads(text)
    scalars = {name: float.fromhex(value) for name, value in fields["scalars"].items()}
    package = Package(tuple(map(_section, fields["sections"])), scalars, fields["crc32c"])
    if (marks.size, marks.value) != (package.size_bytes, package.crc32c):
        raise ValueError("the payload has another checksum")
    if package.digest.hex() != fields["digest"]:
        raise ValueError("the package has another digest")
    return Entry(
        run_id=fields["run_id"],
        round=fields["round"],
        package=package,
        samples=fields["samples"],
        cost=TrainCost.of(fields["cost"]),
        candidate=fields["candidate"],
        marks=marks,
        scores=tuple(ClientScore(**score) for score in fields["scores"]),
    )


def _section_fields(section: Section) -> dict[str, Any]:
    return {
        "kind": str(section.kind),
        "layout": section.layout_digest.hex(),
        "codec": asdict(section.codec),
        "elements": section.elements,
        "size_bytes": section.size_bytes,
    }


def _section(fields: dict[str, Any]) -> Section:
    return Section(
        Kind(fields["kind"]),
        bytes.fromhex(fields["layout"]),
        CodecChoice(**fields["codec"]),
        fields["elements"],
        fields["size_bytes"],
    )
