"""What `fl-lab compare` shows while cells run: a line per finished cell, on a terminal a living one below."""

from __future__ import annotations

from edgeflock.common.command.terminal import Terminal

_BAR = 12  # columns
_MARKS, _ASCII_MARKS = ("━", "─"), ("=", "-")  # done and to come


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
