"""A hundred in every round, of many who are online: what those who are not asked cost the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.scale.asked import Asked, Family, Found, Row, at_most
from benchmarks.scale.fleet import Fleet, Seen, watched

COHORT, MOST = 100, 1.1
_SKIP = 2


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    seen: dict[int, float] = {}
    for online in asked.clients:
        fleet = Fleet(online, rounds=12 if asked.quick else 60, cohort=min(COHORT, online))
        place = folder / str(online)
        found = Seen.of(place, fleet, watched(place, fleet, asked.limit_s), _SKIP)
        seen[online] = found.server_ms
        yield Row((online, found.round_s, 1e3 * found.server_cpu_s, found.clients_ms, found.peak_mib))
    if len(seen) > 1:
        few, many = min(seen), max(seen)
        name = f"server CPU of a round with {many:,} online, times that with {few:,}"
        yield at_most(name, seen[many] / seen[few], MOST)


FAMILY = Family(
    title=f"{COHORT} clients a round, of many who are online",
    columns=(
        "online",
        "round, s",
        "server CPU of a round, ms",
        "clients' CPU per client and round, ms",
        "server peak, MiB",
    ),
    measure=measure,
    about="10 KiB models, cohorts drawn from the roster, no training.",
)
