"""Ranges of allowed values: a test and the words that a refusal uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """What values an option accepts: a test and its words."""

    accepts: Callable[[Any], bool]
    words: str
    names: tuple[str, ...] = ()  # all that it accepts, if these are names


def _text(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def at_least(low: float, noun: str = "a number") -> Range:
    return Range(lambda value: value >= low, f"{noun} >= {_text(low)}")


def above(low: float, noun: str = "a number") -> Range:
    return Range(lambda value: value > low, f"{noun} > {_text(low)}")


def between(low: float, high: float, noun: str = "a number") -> Range:
    return Range(lambda value: low <= value <= high, f"{noun} from {_text(low)} to {_text(high)}")


def unit(*, low: bool = True, high: bool = True) -> Range:
    """Between 0 and 1, with or without the ends."""
    words = f"a number in {'[' if low else '('}0, 1{']' if high else ')'}"
    return Range(
        lambda value: (value >= 0 if low else value > 0) and (value <= 1 if high else value < 1), words
    )


def one_of(*names: str) -> Range:
    return Range(lambda value: value in names, " or ".join(names), names)
