"""The standard streams of a process: none is missing, and one that nobody reads any more ends nothing."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDIN, _STDOUT, _STDERR = range(3)


class _Lossy(io.FileIO):
    """A descriptor that loses what meets one of these errors."""

    def __init__(self, number: int, losing: type[OSError]) -> None:
        super().__init__(number, "w", closefd=False)
        self._losing = losing

    def write(self, data: ReadableBuffer, /) -> int:
        """Write what can be written; what is lost counts as written."""
        try:
            written: int | None = super().write(data)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, "nobody takes it now")
        except self._losing:
            return memoryview(data).nbytes
        return written


def secure() -> None:
    """Let all three lead somewhere; a reader that has gone is none, and a log on a full disk loses lines.

    To be called before anything is opened: a file of the run that had the number of a closed stream would
    be given its words.
    """
    for number in (_STDIN, _STDOUT, _STDERR):
        _lead_somewhere(number)
    sys.stdin = sys.stdin or os.fdopen(_STDIN, closefd=False)
    sys.stdout = _lossy(_STDOUT, sys.stdout, BrokenPipeError)
    sys.stderr = _lossy(_STDERR, sys.stderr, OSError)


def heard() -> bool:
    """Whether somebody may read what is printed: the end of the reader of a pipe is seen at once."""
    asked = select.poll()
    asked.register(_STDOUT, 0)
    return not any(events & select.POLLERR for _, events in asked.poll(0))


def _lead_somewhere(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:  # it was closed (>&-)
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one


def _lossy(number: int, before: TextIO | None, losing: type[OSError]) -> TextIO:
    """Return the stream as it was, over a descriptor that loses what cannot be written."""
    raw = _Lossy(number, losing)
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), errors="replace", line_buffering=True)
    assert isinstance(before, io.TextIOWrapper)
    unbuffered = isinstance(before.buffer, io.RawIOBase)  # python -u
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
