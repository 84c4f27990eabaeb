"""A watch on the event loop: which work of the server's waits there, for a disk or for a thread that may.

Which thread does what is looked at, not how long it takes: that is the same on every machine, under any load.
So a lock is noted that the loop takes and a thread holds while it touches a disk, whether or not they meet.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import sys
import threading
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
    """Within this, the waits of the server's work on an event loop are noted: for disks, threads, locks."""
    global _found
    _found = found = list[str]()
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name in _CALLS:
                if hasattr(os, name):
                    patched.setattr(os, name, _noting(getattr(os, name)))
            for owner, name, may_wait in _WAITS:
                patched.setattr(owner, name, _noting_wait(getattr(owner, name), may_wait))
            patched.setattr(threading, "Lock", _WatchedLock)
            yield found
    finally:
        _found = None


def _noting(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def noting(*args: Any, **kwargs: Any) -> Any:
        _look(f"os.{call.__name__}")
        return call(*args, **kwargs)

    return noting


# What waits for a thread, and whether it would.
_WAITS: tuple[tuple[Any, str, Callable[[Any], bool]], ...] = (
    (concurrent.futures.Future, "result", lambda future: not future.done()),
    (threading.Thread, "join", lambda thread: thread.is_alive()),
)


def _noting_wait(call: Callable[..., Any], may_wait: Callable[[Any], bool]) -> Callable[..., Any]:
    @functools.wraps(call)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if may_wait(self):
            _look(call.__qualname__)
        return call(self, *args, **kwargs)

    return noting


class _WatchedLock:
    """A lock that is noted once the loop has taken it and a thread has touched a disk while it held it."""

    def __init__(self) -> None:
        self._lock = _Lock()
        self._on_loop = ""  # who took it there
        self._at_disk = ""  # what was done within it

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and not self._on_loop and (who := _who()):
            self._on_loop = who
            self._note()
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            _held[self] = threading.get_ident()
        return taken

    def release(self) -> None:
        _held.pop(self, None)
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def within(self, what: str) -> None:
        if not self._at_disk:
            self._at_disk = what
            self._note()

    def _note(self) -> None:
        if self._on_loop and self._at_disk and _found is not None:
            _found.append(f"a lock that is held during {self._at_disk}, by {self._on_loop}")


_Lock = threading.Lock
_held: dict[_WatchedLock, int] = {}  # by whom


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _found is not None and event in _EVENTS:
        _look(f"{event} {args[0]!r}")


def _look(what: str) -> None:
    if _found is None:
        return
    for lock, thread in list(_held.items()):
        if thread == threading.get_ident():
            lock.within(what)
    if who := _who():
        _found.append(f"{what} by {who}")


def _who() -> str:
    """Return the server's work that the loop of this thread runs now; nothing, if there is none."""
    if asyncio._get_running_loop() is None:
        return ""
    work = _work()
    if not work or _PRODUCT not in work[-1].f_code.co_filename:
        return ""
    mine = [frame for frame in work if _PRODUCT in frame.f_code.co_filename]
    return " < ".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in mine)


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
