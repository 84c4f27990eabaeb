"""What a run has cost, for the table at its end: sums of the ledger."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edgeflock.common.command.units import amount
from edgeflock.common.sensors import MODEL
from edgeflock.server.costs.time_line import GATHER, OF_A_ROUND
from edgeflock.server.journal.costs import read_used
from edgeflock.server.journal.feed import JOURNAL
from edgeflock.server.journal.schema import read_only


def totals(run_dir: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines for which the ledger has numbers."""
    if not (run_dir / JOURNAL).is_file():
        return
    with (
        contextlib.suppress(sqlite3.Error),  # of an earlier edgeflock, or not readable: then there is no line
        contextlib.closing(read_only(run_dir / JOURNAL)) as connection,
    ):
        if flops := connection.execute("SELECT sum(flops) FROM costs").fetchone()[0]:
            yield "operations", f"{amount('flops', flops)} at the clients"
        clients = connection.execute(
            "SELECT energy_source, sum(energy_j), count(DISTINCT idx) FROM costs "
            "WHERE energy_j IS NOT NULL GROUP BY energy_source ORDER BY energy_source"
        ).fetchall()
        server = connection.execute("SELECT sum(value) FROM round_costs WHERE name = 'energy_j'").fetchone()[
            0
        ]
        for source, joules, members in clients:
            yield (
                f"energy, {members} client{'s'[: members > 1]}",
                f"{amount('energy', joules)} ({_from(source)})",
            )
        if server:
            yield "energy, server", f"{amount('energy', server)} (from its sensor)"


def spent(run_dir: Path) -> dict[str, float]:
    """Return payload and seconds of the whole run by their names in the ledger, nothing if it has none.

    It has more than the lines of rounds: what was written after a line, and rounds that were given up.
    """
    found: dict[str, float] = {}
    if not (run_dir / JOURNAL).is_file():
        return found
    names = (GATHER, *OF_A_ROUND)
    with contextlib.suppress(sqlite3.Error), contextlib.closing(read_only(run_dir / JOURNAL)) as connection:
        down, up = connection.execute("SELECT sum(bytes_down), sum(bytes_up) FROM costs").fetchone()
        found = {"bytes_down": down or 0.0, "bytes_up": up or 0.0}
        marks = ", ".join("?" for _ in names)
        query = f"SELECT name, sum(value) FROM round_costs WHERE name IN ({marks}) GROUP BY name"
        found |= dict(connection.execute(query, names).fetchall())
    return found


def used(run_dir: Path) -> dict[str, float]:
    """Return what the journal says is used of the budgets, with what clients said after the end."""
    if (run_dir / JOURNAL).is_file():
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(read_only(run_dir / JOURNAL)) as connection,
        ):
            return read_used(dict(connection.execute("SELECT name, value FROM meta")))
    return {}


def _from(source: str) -> str:
    return "as --watts states it" if source == MODEL else f"from {source}"
