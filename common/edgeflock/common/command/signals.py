"""Signals that ask a process to go: they reach a daemon in its loop while that runs, else the command."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def leaving() -> tuple[signal.Signals, ...]:
    """Return what asks to go besides Ctrl-C: SIGTERM, and the end of the terminal unless nohup hides it."""
    hidden = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM,) if hidden else (signal.SIGTERM, signal.SIGHUP)


def on_leaving(handle: Callable[[int, FrameType | None], object]) -> None:
    """Let a function without a loop handle them."""
    for number in leaving():
        signal.signal(number, handle)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does, all processes that were started too; which signal it was is said at the end."""
    raise KeyboardInterrupt(number)


@contextmanager
def asking(ask: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Let these and SIGINT call `ask` on the running loop; afterwards they do again what they did."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (*leaving(), signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, ask, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
