"""Constants: the buffers of a model that never travel, told so that two ends can compare them. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgeflock.common.errors import LayoutMismatch

_ALIKE = 1e-5  # of the sum: another processor's sine may differ in its last bits


@dataclass(frozen=True)
class Constant:
    """One buffer that no training step changes."""

    name: str
    shape: tuple[int, ...]
    digest: bytes  # of its type and bytes
    special: bytes  # digest of where it holds NaN and infinities
    total: float  # of its finite numbers, each with its own weight
    scale: float  # the same of their sizes


def compare(mine: Iterable[Constant], theirs: Iterable[Constant]) -> None:
    """Raise LayoutMismatch if the constants of two models are not the same, but for the last bits."""
    here, there = ({one.name: one for one in part} for part in (mine, theirs))
    for name in sorted(here.keys() | there.keys()):
        if name not in here or name not in there or not _alike(here[name], there[name]):
            raise LayoutMismatch(
                f"this client's model and the server's differ in the constant buffer {name!r}: the factory "
                "has to make the same numbers on every machine"
            )


def _alike(one: Constant, other: Constant) -> bool:
    if one.digest == other.digest:
        return True
    if (one.shape, one.special) != (other.shape, other.special):
        return False
    return abs(one.total - other.total) <= _ALIKE * max(one.scale, other.scale)
