"""Everybody in every round: seconds, CPU of both ends, memory, descriptors, journal, from 100 clients on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.scale.asked import Asked, Family, Found, Row, at_most, exponent
from benchmarks.scale.fleet import Fleet, Seen, watched

SIZES_KIB = (10.0, 256.0)
MOST_EXPONENT, MOST_GROWTH_KIB, MOST_SERVER_MS = 1.05, 100.0, 1.3
_STEADY = 1000  # from so many clients on growth is no longer what a process needs anyway


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    for kib in SIZES_KIB:
        seen: dict[int, Seen] = {}
        for clients in asked.clients:
            fleet = Fleet(clients, kib, rounds(clients, quick=asked.quick))
            place = folder / f"{clients}-{kib:g}"
            seen[clients] = found = Seen.of(place, fleet, watched(place, fleet, asked.limit_s), skip=1)
            yield Row(
                (
                    f"{clients:,} x {kib:g} KiB",
                    found.round_s,
                    found.server_ms,
                    found.clients_ms,
                    found.idle_mib,
                    found.peak_mib,
                    found.growth_kib,
                    found.fds,
                    found.journal_bytes,
                )
            )
        yield from _held(kib, seen)


def _held(kib: float, seen: dict[int, Seen]) -> Iterator[Found]:
    if len(seen) > 1:
        fit = exponent([(clients, one.server_cpu_s) for clients, one in seen.items()])
        yield at_most(f"exponent of the server's CPU against N, {kib:g} KiB", fit, MOST_EXPONENT)
    for clients, one in seen.items():
        if clients >= _STEADY:
            name = f"server growth per client, KiB, {clients:,} x {kib:g} KiB"
            yield at_most(name, one.growth_kib, MOST_GROWTH_KIB)
        if clients == _STEADY and kib == max(SIZES_KIB):
            name = f"server CPU per client and round, ms, {clients:,} x {kib:g} KiB"
            yield at_most(name, one.server_ms, MOST_SERVER_MS)


def rounds(clients: int, *, quick: bool) -> int:
    """Return how many rounds make a figure: more where they are short."""
    if quick:
        return 6
    return 40 if clients <= 300 else 12 if clients <= 1000 else 6 if clients <= 3000 else 4


FAMILY = Family(
    title="Hosted clients, everybody in every round",
    columns=(
        "clients x model",
        "round, s",
        "server CPU per client and round, ms",
        "clients' CPU, ms",
        "server idle, MiB",
        "peak, MiB",
        "growth per client, KiB",
        "server's descriptors",
        "journal per client and round, B",
    ),
    measure=measure,
    about="One `fl-server`, one `fl-client` that hosts them all, no training. Growth is the server's peak "
    "less what it holds before a client has joined, for each client.",
)
