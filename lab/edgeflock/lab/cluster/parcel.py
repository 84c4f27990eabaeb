"""A run directory as one piece: what a node packs of it, and how it appears at home, whole or not at all."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

from edgeflock.server.files.run_dir import ADDRESS, CONTROL, CONTROL_SOCKET, LOCK, sync_directory

_CLIENTS = "clients"
_LEFT = frozenset({"spool", LOCK, ADDRESS, CONTROL, CONTROL_SOCKET, "dashboard", "journal.sqlite-shm"})
_MOST_STATE = 256 << 20  # bytes


def pack(folder: Path) -> bytes:
    """Return a run directory whose processes have ended, without what only they needed.

    The state of the clients is left, too, where it is large: who goes on with the run then begins it anew.
    """
    if not folder.is_dir():
        return b""
    left = _LEFT if _size(folder / _CLIENTS) <= _MOST_STATE else _LEFT | {_CLIENTS}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if path.name not in left:
                archive.add(path, path.name)
    return made.getvalue()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def unpack(parcel: bytes, folder: Path) -> None:
    """Make the directory of a parcel, under another name until it is whole; what was there is kept."""
    coming = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(coming, ignore_errors=True)
    coming.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(parcel)) as archive:
        archive.extractall(coming, filter="data")
    if folder.exists():
        folder.rename(_beside(folder))
    coming.rename(folder)
    sync_directory(folder.parent)


def _beside(folder: Path) -> Path:
    """Return a free name for an unfinished run that gives way to a whole one."""
    number = 1
    while (place := folder.with_name(f"{folder.name}.before-{number}")).exists():
        number += 1
    return place
