"""What the ledger holds beside the sums of a history: bytes by what they held, joules by who says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.common.sensors import MODEL
from edgeflock.lab.history.history import History, Numbers, opened

Key = tuple[int, int]  # epoch and round
Held = tuple[str, str, str]  # direction, bundle kind and codec
SENSOR, STATED, SERVER = "sensor_j", "stated_j", "server_j"


@dataclass(frozen=True)
class Ledger:
    """Costs by round and by client; empty where the journal has none of them."""

    bundles: Mapping[Key, Mapping[Held, int]] = field(default_factory=dict)
    joules: Mapping[Key, Numbers] = field(default_factory=dict)  # by SENSOR, STATED and SERVER
    client_joules: Mapping[int, Numbers] = field(default_factory=dict)  # by seat: SENSOR and STATED

    @property
    def held(self) -> dict[Held, int]:
        """All bytes of the run by what they held, those of rounds that were given up too."""
        total: dict[Held, int] = {}
        for round in self.bundles.values():
            for what, size in round.items():
                total[what] = total.get(what, 0) + size
        return dict(sorted(total.items()))

    @property
    def sources(self) -> frozenset[str]:
        """What its joules are from: SENSOR, STATED, SERVER."""
        return frozenset(name for round in self.joules.values() for name in round)


def read(run_dir: Path) -> tuple[History, Ledger]:
    """Read a run and its ledger as of one moment; raises what `history.read` does."""
    with opened(run_dir) as (history, connection):
        ledger = Ledger(_bundles(connection), _joules(connection, history), _client_joules(connection))
        return history, ledger


def _bundles(connection: sqlite3.Connection) -> dict[Key, dict[Held, int]]:
    found: dict[Key, dict[Held, int]] = {}
    if _columns(connection, "bundle_bytes"):
        for epoch, round, *held, size in connection.execute(
            "SELECT epoch, round, direction, kind, codec, sum(bytes) FROM bundle_bytes "
            "GROUP BY epoch, round, direction, kind, codec HAVING sum(bytes) > 0"
        ):
            found.setdefault((epoch, round), {})[held[0], held[1], held[2]] = size
    return found


def _joules(connection: sqlite3.Connection, history: History) -> dict[Key, Numbers]:
    found = {(epoch, round): joules for (epoch, round), joules in _by_source(connection, "epoch, round")}
    for round in (*history.rounds, *history.others):
        if told := round.values.get("energy_j"):
            found.setdefault((round.epoch, round.number), {})[SERVER] = told
    return dict(found)


def _client_joules(connection: sqlite3.Connection) -> dict[int, Numbers]:
    return {index: joules for (index,), joules in _by_source(connection, "idx")}


def _by_source(connection: sqlite3.Connection, by: str) -> Iterator[tuple[tuple[int, ...], dict[str, float]]]:
    """Yield the joules of clients: those of sensors, and those of watts that somebody stated."""
    if not {"energy_j", "energy_source"} <= _columns(connection, "costs"):
        return
    for *key, measured, stated in connection.execute(
        f"SELECT {by}, sum(CASE WHEN energy_source IS NOT ? THEN energy_j END), "
        "sum(CASE WHEN energy_source IS ? THEN energy_j END) "
        f"FROM costs WHERE energy_j IS NOT NULL GROUP BY {by}",
        (MODEL, MODEL),
    ):
        told = ((SENSOR, measured), (STATED, stated))
        yield tuple(key), {name: joules for name, joules in told if joules}


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table, none if an earlier edgeflock had no such table."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
