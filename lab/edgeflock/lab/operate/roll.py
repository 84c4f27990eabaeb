"""What a status says of the clients: each of them, or of many their number and who is to be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeflock.common.command.crowd import EVERYBODY, by_number, is_crowd
from edgeflock.common.command.terminal import safe

_VERSIONS = (("edgeflock", "software"), ("torch", "torch"), ("", "machine"))  # a word, and the fact


@dataclass(frozen=True)
class Present:
    """One client in the roll."""

    name: str
    seat: int | None
    samples: int | None
    words: Sequence[str]  # what is to be said of it
    tally: Mapping[str, int]  # what of it is added up over many
    concern: int = 0  # who has most is looked at first
    device: Mapping[str, Any] = field(default_factory=dict)  # as it has described itself; empty: not yet

    def line(self, otherwise: str) -> str:
        place = "-" if self.seat is None else str(self.seat)
        samples = "?" if self.samples is None else self.samples
        said = ", ".join(self.words) or otherwise
        return f"  {place:>4}  {self.name:<24} {samples:>8} samples  {said}"


def called(clients: Sequence[Present], find: str, otherwise: str) -> list[str]:
    """Return the lines: versions, and those whose id holds `find`; `otherwise` is said of whom nothing is."""
    found = [one for one in clients if find in one.name]
    versions = versions_of(one.device for one in clients)
    lines = [f"versions {versions}"] if versions else []
    if find and not found:
        return [*lines, f"no client's id holds '{safe(find)}'"]
    if not is_crowd(found):
        return [*lines, *(one.line(otherwise) for one in found)]
    lines.append(f"together {', '.join(_added_up(found, otherwise))}")
    first = sorted(found, key=lambda one: -one.concern)[:EVERYBODY]
    rest = f"  ... and {len(found) - len(first):,} more: --find ID shows those whose id holds it"
    return [*lines, *(one.line(otherwise) for one in first), rest]


def _added_up(clients: Sequence[Present], otherwise: str) -> list[str]:
    sums: Counter[str] = Counter()
    for one in clients:
        sums.update(one.tally)
    silent = sum(not one.words for one in clients)
    told = [f"{times:,} {what}" for what, times in sums.items() if times]
    return [*told, f"{silent:,} clients {otherwise}"] if silent else told


def versions_of(devices: Iterable[Mapping[str, Any]]) -> str:
    """Return which versions and platforms there are, and of several how many clients have each."""
    known = [device for device in devices if device]
    told = []
    for title, fact in _VERSIONS:
        kinds = by_number(safe(str(device[fact])) for device in known if device.get(fact))
        several = len(kinds) > 1
        said = ", ".join(f"{value} ({times:,})" if several else value for value, times in kinds)
        told += [f"{title} {said}".strip()] if said else []
    return "; ".join(told)
