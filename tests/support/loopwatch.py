"""A watch on the event loop: which work of the server's touches a disk in the loop's own thread.

Which thread does it is looked at, not how long it takes: that is the same on every machine, under any load.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

_FILES = ("listdir", "mkdir", "remove", "rename", "rmdir", "scandir", "truncate")
_EVENTS = frozenset({"open", "sqlite3.connect", *(f"os.{name}" for name in _FILES)})  # Python's audit tells
_CALLS = ("fdatasync", "fsync", "posix_fallocate", "pread", "pwrite", "stat")  # it does not tell of these
_PRODUCT = os.path.join("edgeflock", "server")
_found: list[str] | None = None  # while somebody watches


@contextmanager
def watched() -> Iterator[list[str]]:
    """Within this, every touch of a disk by the server's work on an event loop is noted."""
    global _found
    _found = found = list[str]()
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name in _CALLS:
                if hasattr(os, name):
                    patched.setattr(os, name, _noting(getattr(os, name)))
            yield found
    finally:
        _found = None


def _noting(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def noting(*args: Any, **kwargs: Any) -> Any:
        _look(f"os.{call.__name__}")
        return call(*args, **kwargs)

    return noting


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _found is not None and event in _EVENTS:
        _look(f"{event} {args[0]!r}")


def _look(what: str) -> None:
    if _found is None or asyncio._get_running_loop() is None:
        return
    work = _work()
    if work and _PRODUCT in work[-1].f_code.co_filename:
        mine = [frame for frame in work if _PRODUCT in frame.f_code.co_filename]
        lines = " < ".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in mine)
        _found.append(f"{what} by {lines}")


def _work() -> list[FrameType]:
    """Return the frames of what the loop runs now, from the innermost to the one that it has called."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is asyncio.Handle._run.__code__:
            return frames
        frames.append(frame)
        frame = frame.f_back
    return []


sys.addaudithook(_audit)  # for good: it cannot be taken back
