"""A run directory whose journal was written by hand: rounds, costs and evaluations without any process."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_toml import to_toml
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.schema import connect
from edgeflock.server.start.resolve import resolve

COST = {
    "samples": 100,
    "steps": 4,
    "bytes_down": 1000,
    "bytes_up": 900,
    "resent_bytes": 100,
    "message_bytes_down": 1010,
    "message_bytes_up": 920,
    "fetch_s": 0.5,
    "train_s": 2.0,
    "deliver_s": 0.25,
    "wait_s": 1.25,
    "cpu_s": 1.5,
}


@contextlib.contextmanager
def writing(run_dir: Path) -> Iterator[sqlite3.Connection]:
    """Give the journal of a run directory; what is written is committed at the end."""
    with contextlib.closing(connect(run_dir / "journal.sqlite")) as connection:
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")


def told_run(
    run_dir: Path,
    rounds: int = 3,
    names: Sequence[str] = ("a", "b"),
    ended: bool = True,
    **config: Any,
) -> Path:
    """Write a run whose accuracy after round r is r / 10, and whose members all cost the same."""
    run_dir.mkdir(parents=True)
    settings = {"rounds": rounds, "clients": len(names), "run_dir": run_dir, **config}
    (run_dir / "run.toml").write_text(to_toml(resolve(ServerConfig(**settings))), "utf-8")
    with writing(run_dir) as journal:
        meta = {"run_id": "told", "epoch": "0"}
        if ended:
            meta |= {"ended_kind": "completed", "ended_reason": f"all {rounds} rounds are done"}
        insert(journal, "meta", *({"name": name, "value": value} for name, value in meta.items()))
        insert(journal, "seats", *({"seat": i, "client_id": n, "samples": 100} for i, n in enumerate(names)))
        insert(journal, "rounds", {"epoch": 0, "round": 0, "cohort": "[]", "committed": 1})
        for round in range(1, rounds + 1):
            write_round(journal, 0, round, len(names))
        for name in names:
            write_event(journal, "client_joined", {"client": name, "machine": "aarch64", "cores": 4}, 1.0)
    return run_dir


def write_round(journal: sqlite3.Connection, epoch: int, round: int, members: int) -> None:
    """Write a committed round with everything that belongs to it."""
    key = {"epoch": epoch, "round": round}
    insert(journal, "rounds", {**key, "cohort": json.dumps(list(range(members))), "committed": 1})
    for index in range(members):
        insert(journal, "outcomes", {**key, "seat": index, "digest": b"", "verdict": "counted"})
        insert(journal, "costs", {**key, "seat": index, **COST, "peak_rss_bytes": 1000 * (index + round)})
    values = {
        "open_s": 4.0,
        "fold_s": 0.5,
        "commit_s": 0.5,
        "loss": 2.0 / round,
        "measured time": 5.0 * round,
    }
    insert(journal, "round_costs", *({**key, "name": name, "value": value} for name, value in values.items()))
    score = {"model": "global", "value": round / 10, "loss": 1.0 / round, "samples": 50}
    insert(journal, "evaluations", {**key, **score})


def insert(journal: sqlite3.Connection, table: str, *rows: dict[str, Any]) -> None:
    for row in rows:
        marks = ", ".join("?" for _ in row)
        journal.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
