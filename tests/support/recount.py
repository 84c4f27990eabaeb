"""The figures of a run, recounted from its journal by docs/costs.md alone, with none of our code."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

SECONDS = ("select_s", "open_s", "fold_s", "commit_s", "evaluate_s", "paused_s")
Figures = dict[str, float]


def recount(run_dir: Path) -> Figures:
    """Return every figure by a name of its own, 0 where nobody told."""
    uri = f"file:{run_dir / 'journal.sqlite'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=20)) as journal:
        journal.execute("BEGIN")  # all of one moment

        def total(what: str, table: str = "costs", which: str = "1") -> float:
            return float(journal.execute(f"SELECT total({what}) FROM {table} WHERE {which}").fetchone()[0])

        def of_rounds(*names: str) -> float:
            listed = ", ".join(f"'{name}'" for name in names)
            return total("value", "round_costs", f"name IN ({listed})")

        down, up = total("bytes_down"), total("bytes_up")
        clients_j, server_j = total("energy_j"), of_rounds("energy_j")
        clients_s, server_s = total("cpu_s"), of_rounds("server_cpu_s")
        return {
            "bytes down": down,
            "bytes up": up,
            "bytes": down + up,
            "bytes by what they held": total("bytes", "bundle_bytes"),
            "seconds": of_rounds(*SECONDS),
            "cpu of clients": clients_s,
            "cpu": clients_s + server_s,
            "energy of clients": clients_j,
            "energy": clients_j + server_j,
            "operations": _operations(journal),
            "operations as written": total("flops"),
            "seconds of tests": total("exam_s"),
            "bytes of tests": total("exam_bytes"),
        }


def budgets(run_dir: Path) -> Figures:
    """Return what the journal says is used of the budgets."""
    uri = f"file:{run_dir / 'journal.sqlite'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=20)) as journal:
        meta = dict(journal.execute("SELECT name, value FROM meta"))
    return {name: float(meta.get(f"used_{name}", 0.0)) for name in ("time", "bytes", "cpu", "energy")}


def own(run_dir: Path) -> set[str]:
    """Return the budgets for which the method's own count stands in the place of ours."""
    uri = f"file:{run_dir / 'journal.sqlite'}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=20)) as journal:
        names = [
            name for (name,) in journal.execute("SELECT name FROM meta WHERE name LIKE 'own#_%' ESCAPE '#'")
        ]
    return {name.removeprefix("own_") for name in names}


def _operations(journal: sqlite3.Connection) -> float:
    meta = dict(journal.execute("SELECT name, value FROM meta"))
    forward, backward = (float(meta.get(f"{way}_flops", 0.0)) for way in ("forward", "backward"))
    rows = journal.execute(
        "SELECT forward_samples, backward_samples, method_flops - method_pass_flops FROM costs"
    )
    return sum(
        (there or 0) * forward + (back or 0) * backward + (vectors or 0.0) for there, back, vectors in rows
    )
