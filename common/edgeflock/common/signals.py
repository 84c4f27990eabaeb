"""Signals of a daemon: SIGTERM and Ctrl-C go to its loop, and before and after that to the command."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def asking(ask: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Let SIGTERM and SIGINT call `ask` on the running loop; afterwards they do again what they did."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, ask, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
