"""What the logs of a server's spool say, read while the server writes them."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.payload.description import CorruptDescription, Description

_HEAD_BYTES, _MARK_BYTES = 8, 12  # size and checksum of the header; end and checksum of a chunk


def sent(run_dir: Path, round: int, seat: int) -> bool:
    """Whether a member has sent the header of its update; the file itself may be of a round before."""
    return _marks(run_dir, round, seat) is not None


def arrived(run_dir: Path, round: int, seat: int) -> bool:
    """Whether bytes of its payload are there, too; of a small update all of them."""
    return any((_marks(run_dir, round, seat) or b"")[:_MARK_BYTES])


def _marks(run_dir: Path, round: int, seat: int) -> bytes | None:
    path = run_dir / f"spool/{round:06d}/{seat:06d}.log"
    log = path.read_bytes() if path.exists() else b""
    end = _HEAD_BYTES + int.from_bytes(log[:4], "little")
    try:
        found, _ = Description.from_bytes(log[_HEAD_BYTES:end])
    except CorruptDescription:
        return None
    return log[end:] if found.round == round else None
