"""What a run has cost in operations and energy, for the table at its end: sums of the ledger."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edgeflock.common.sensors import MODEL
from edgeflock.lab.feed import JOURNAL
from edgeflock.lab.report.units import amount
from edgeflock.server.journal import read_only


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


def _from(source: str) -> str:
    return "as --watts states it" if source == MODEL else f"from {source}"
