"""Who is in a round: seeded selection, and the natural order of client ids. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from edgeflock.common.seeds import numpy_generator

_PARTS = re.compile(r"(\d+)")


def natural_order(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids sorted with numbers by value: c2 before c10."""
    return tuple(sorted(ids, key=_natural_key))


def _natural_key(client_id: str) -> tuple[tuple[int, int, str], ...]:
    parts = [part for part in _PARTS.split(client_id) if part]
    key = tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in parts)
    return (*key, (2, 0, client_id))


def select(seed: int, round: int, candidates: Collection[int], size: int) -> tuple[int, ...]:
    """Return `size` of the candidates (all if there are fewer), ascending; a function of its arguments."""
    ordered = sorted(candidates)
    if size >= len(ordered):
        return tuple(ordered)
    chosen = numpy_generator(seed, "cohort", round).choice(len(ordered), size=size, replace=False)
    return tuple(sorted(ordered[place] for place in chosen))


def extension(seed: int, round: int, candidates: Collection[int], size: int) -> tuple[int, ...]:
    """Return the members by whom a short round is extended, from those not in it."""
    return select(seed, -round, candidates, size)
