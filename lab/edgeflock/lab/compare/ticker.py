"""What `fl-lab compare` shows of a grid and while cells run: how many, a line for each that is finished."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgeflock.common.command.terminal import Terminal
from edgeflock.common.command.units import counted

_BAR = 12  # columns
_MARKS, _ASCII_MARKS = ("━", "─"), ("=", "-")  # done and to come


def product(axes: Mapping[str, Sequence[Any]], cells: int | None = None) -> str:
    """Return `6 cells (3 methods x 2 seeds)`, with commas where some axes are not for all."""
    every = math.prod(map(len, axes.values()))
    parts = [counted(len(values), axis) for axis, values in axes.items()]
    words = (" x " if cells in (None, every) else ", ").join(parts) or "no axes"
    return f"{counted(cells or every, 'cell')} ({words})"


class Ticker:
    """The progress of a grid of so many cells."""

    def __init__(self, terminal: Terminal, cells: int) -> None:
        self._terminal, self._cells = terminal, cells
        self._marks = _MARKS if terminal.unicode else _ASCII_MARKS

    def show(self, done: int, running: str, estimate: str) -> None:
        """Say how far it is now, what runs, and how long it still takes."""
        full, empty = self._marks
        part = _BAR * done // self._cells
        bar = [(full * part, "live"), (empty * (_BAR - part), "dim")]
        self._terminal.show([*bar, (f" {done}/{self._cells} {estimate}", ""), (f" {running}", "dim")])

    def say(self, sentence: str) -> None:
        self._terminal.say([(sentence, "")], indent=2)

    def close(self) -> None:
        self._terminal.show(())
