"""Model arguments: `--model-arg KEY=VALUE` texts, read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.common.errors import BadValue, UnknownName


@dataclass(frozen=True)
class Argument:
    """One argument of a model: its default as text, how a text is read, and what is allowed in words."""

    default: str
    read: Callable[[str], Any]  # raises ValueError
    allowed: str

    def value(self, name: str, text: str) -> Any:
        try:
            return self.read(text.strip())
        except ValueError:
            raise BadValue(f"model argument {name}", text, self.allowed) from None


def parse(known: Mapping[str, Argument], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of every known argument; what is not given has its default.

    Raises UnknownName or BadValue.
    """
    for name in texts:
        if name not in known:
            raise UnknownName("model argument", name, known)
    return {name: argument.value(name, texts.get(name, argument.default)) for name, argument in known.items()}


def choice(*words: str) -> Argument:
    """One of several words, the first of which is the default."""
    return Argument(words[0], lambda text: words[words.index(text)], " or ".join(words))


def whole(default: int, *, low: int = 1, high: int = 65536) -> Argument:
    return Argument(
        str(default), lambda text: _between(int(text), low, high), f"a whole number in [{low}, {high}]"
    )


def share(default: float) -> Argument:
    """A probability below 1."""
    return Argument(str(default), _share, "a number in [0, 1)")


def sizes(default: str) -> Argument:
    """One or several layer sizes: `100`, `64,32`, `[64, 32]`."""
    return Argument(default, _sizes, "one or more whole numbers in [1, 65536], such as 100 or 64,32")


def _between(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError
    return value


def _share(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and 0 <= value < 1):
        raise ValueError
    return value


def _sizes(text: str) -> tuple[int, ...]:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return tuple(_between(int(part), 1, 65536) for part in inner.split(","))
