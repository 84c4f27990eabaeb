"""Phrases such as `cosine:warmup=5,floor=0.1`: a word, and values by name, read as their defaults are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from edgeflock.common.errors import BadValue

V = TypeVar("V")


def split(flag: str, text: str, allowed: str) -> tuple[str, dict[str, str]]:
    """Return the word and what is given by name. Raises BadValue with what is allowed."""
    word, colon, rest = text.strip().partition(":")
    found: dict[str, str] = {}
    for part in rest.split(",") if colon else ():
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name or not value or name in found:
            raise BadValue(flag, text, allowed)
        found[name] = value
    return word, found


def filled(
    flag: str, text: str, allowed: str, start: V, given: Mapping[str, str], names: Collection[str]
) -> V:
    """Return a dataclass with what is given in it; only those names may be. Raises BadValue."""
    values: dict[str, Any] = dict(vars(start))
    for name, value in given.items():
        if name not in names:
            raise BadValue(flag, text, allowed)
        try:
            values[name] = type(values[name])(value)
        except ValueError:
            raise BadValue(flag, text, allowed) from None
    return type(start)(**values)
