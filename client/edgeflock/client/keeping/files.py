"""How the files of a state directory are written: replaced whole, or over what was there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from edgeflock.common.payload.checksum import Buffer


def replace_file(path: Path, content: bytes, *, lasting: bool = True) -> None:
    """Write a small file so that a reader finds the old content or the new, never a part.

    If it is to be `lasting`, that holds after a power cut, too, and what was written is there then.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if lasting:
        flush_names(path.parent)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder and those that it lies in, for their owner alone unless the mode says otherwise; a power
    cut takes none away again."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folder(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    flush_names(path.parent)


def flush_names(folder: Path) -> None:
    """Let what was made, renamed or removed in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_over(path: Path, content: bytes) -> bool:
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


def write_pieces(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a file in place: overwriting pages that are cached costs a tenth of fresh ones."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = 0
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while len(view):
                count = os.pwrite(descriptor, view, end)
                view, end = view[count:], end + count
        if os.fstat(descriptor).st_size != end:
            os.ftruncate(descriptor, end)
    finally:
        os.close(descriptor)
