"""What people look at: lines that stay, and below them one that changes, where there is a terminal."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

Piece = tuple[str, str]  # a text, and its style
Line = Sequence[Piece]

_STYLES = {"bold": "1", "dim": "2", "error": "31", "good": "32", "warning": "33", "live": "36"}
_USUAL, _NARROWEST = 80, 20  # columns
_WORD = re.compile(r"\s*\S+|\s+")


class Terminal:
    """One stream for people. A pipe or a file gets the lines that stay, without a control code.

    Whatever it is given may be the words of somebody else: none of them moves the cursor.
    """

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self._ends = stream.isatty()  # so do its lines
        self.moves = self._ends and environ.get("TERM", "dumb") not in ("", "dumb")
        self.coloured = self.moves and not environ.get("NO_COLOR")
        self.unicode = "utf" in (stream.encoding or "").lower()
        self._live: Line = ()
        self._lock = threading.RLock()

    @property
    def width(self) -> int | None:
        """Columns; None: a line has no end."""
        if not self._ends:
            return None
        try:
            found = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            found = 0
        return max(found, _NARROWEST) if found else _USUAL

    def say(self, line: Line, indent: int = 0) -> None:
        """Write a line that stays; where it has to go on below, so far from the left."""
        with self._lock:
            rows = folded(_safe(line), self.width, indent)
            live = self._redrawn() if self._live and self._in_sight() else []
            self._write([self._begun(), *(self._painted(row) + "\n" for row in rows), *live])

    def tell(self, words: str, style: str = "") -> None:
        """Write what has happened, and when."""
        self.say([(time.strftime("%H:%M:%S  "), "dim"), (words, style)], indent=10)

    def show(self, line: Line) -> None:
        """Let this be the line that changes; an empty one takes it away. Never waits for the terminal."""
        with self._lock:
            if not self.moves or (not line and not self._live):
                return
            self._live = _safe(line)
            if self._in_sight():
                self._write([self._begun(), *self._redrawn()])

    def _redrawn(self) -> list[str]:
        return [self._painted(cut(self._live, (self.width or _USUAL) - 1))]

    def _begun(self) -> str:
        return "\r\x1b[K" if self.moves else ""

    def _painted(self, line: Line) -> str:
        if not self.coloured:
            return "".join(text for text, _ in line)
        return "".join(f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style else text for text, style in line)

    def _in_sight(self) -> bool:
        """Whether the terminal takes more now, and is not lent to another command."""
        with suppress(OSError, ValueError):
            number = self._stream.fileno()
            return os.tcgetpgrp(number) == os.getpgrp() and bool(select.select([], [number], [], 0)[1])
        return True

    def _write(self, texts: Iterable[str]) -> None:
        text = "".join(texts)
        if not self.unicode:
            text = text.encode(self._stream.encoding or "ascii", "replace").decode("ascii", "replace")
        self._stream.write(text)
        self._stream.flush()


def safe(text: str) -> str:
    """Return a text of somebody else without what would move the cursor or change the colours."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _safe(line: Line) -> list[Piece]:
    return [(safe(text), style) for text, style in line]


def length(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def folded(line: Line, width: int | None, indent: int = 0) -> list[list[Piece]]:
    """Break a line between its words, never within one."""
    if width is None or length(line) <= width:
        return [list(line)]
    rows: list[list[Piece]] = [[]]
    for text, style in line:
        for word in _WORD.findall(text):
            apart = word[0].isspace() or text_of(rows[-1]).endswith(" ")
            if apart and rows[-1] and word.strip() and length(rows[-1]) + len(word) > width:
                word = word.lstrip()
                rows.append([(" " * max(0, min(indent, width - len(word))) + word, style)])
            else:
                rows[-1].append((word, style))
    return rows


def cut(line: Line, width: int) -> list[Piece]:
    """Return as much of a line as there is room for."""
    if length(line) <= width:
        return list(line)
    kept: list[Piece] = []
    room = width - 1
    for text, style in line:
        kept.append((text[:room], style))
        room -= len(text)
        if room <= 0:
            break
    return [*kept, ("…", "dim")]


def spark(values: Sequence[float], most: int) -> str:
    """Return the last values as a line of blocks, from the lowest to the highest of them."""
    blocks = "▁▂▃▄▅▆▇█"
    drawn = values[-most:] if most > 0 else ()
    if not drawn:
        return ""
    low, span = min(drawn), max(drawn) - min(drawn)
    return "".join(blocks[round((value - low) / span * 7) if span else 0] for value in drawn)
