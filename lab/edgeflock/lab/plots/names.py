"""Names cut to the room there is, so that they can still be told apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

_LONG = 12  # characters


def elide(text: str, width: int) -> str:
    """Return a text of at most that many characters: the middle goes, for names differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def elided(texts: Sequence[str], width: int) -> list[str]:
    """Return texts cut to about that width, cut less where two would look the same."""
    while len({elide(text, width) for text in texts}) < len(set(texts)):
        width += 1
    return [elide(text, width) for text in texts]


def without_beginning(names: Sequence[str]) -> list[str]:
    """Return names without the words that all begin with, if these are long: plots have little room."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    begin = "".join(letters[0] for letters in same) if len(names) > 1 else ""
    cut = max(begin.rfind(mark) + 1 for mark in "-_/. ")
    return [f"…{name[cut:]}" for name in names] if cut > _LONG else list(names)
