"""Breaks the code a little, many times, and tells which of it no test notices.

    PYTHONPATH=tests python -m support.mutants reach            # once: which tests reach which line
    PYTHONPATH=tests python -m support.mutants try --sample 300 --seed 1 [--wing client] [--jobs 2]
    PYTHONPATH=tests python -m support.mutants table            # of all that was tried

`make mutants` does the three. What was tried is kept in build/mutants and not tried again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from support.mutants.changes import Change, can_be_run, changes
from support.mutants.reach import WINGS, Reach
from support.mutants.trial import Copy, Tried

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "build" / "mutants"
JUDGED = ROOT / "tests" / "data" / "equivalent_mutants.toml"
_BEFORE_PROCESSES_S = 90.0  # of tests that reach it in their own process, the quickest
_LIMIT_S = 600.0

# The places of each, the first that fits, and the tests that reach them in processes, where no line is seen.
STRATA: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fold, aggregation": (("server/edgeflock/server/learning",), ("tests/faults/test_determinism.py",)),
    "the run's machine": (
        ("server/edgeflock/server/core",),
        ("tests/faults/test_stragglers.py", "tests/faults/test_sigterm.py", "tests/faults/test_closing.py"),
    ),
    "journal, files, state": (
        (
            "server/edgeflock/server/journal",
            "server/edgeflock/server/files",
            "client/edgeflock/client/keeping",
        ),
        (
            "tests/faults/test_crashes.py",
            "tests/faults/test_disk_full.py",
            "tests/faults/test_run_directory.py",
        ),
    ),
    "engine, service, sessions": (
        ("server/edgeflock/server/engine", "server/edgeflock/server/service"),
        ("tests/faults/test_crashes.py", "tests/faults/test_sigterm.py", "tests/faults/test_network.py"),
    ),
    "codecs, packages, wire": (
        ("common/edgeflock/common/payload", "common/edgeflock/common/wire"),
        ("tests/faults/test_tls.py", "tests/faults/test_versions.py"),
    ),
    "costs, budgets": (
        ("server/edgeflock/server/costs", "client/edgeflock/client/costs.py"),
        ("tests/faults/test_budgets.py",),
    ),
    "the methods": (("common/edgeflock/methods",), ()),
    "the client's loop": (
        ("client/edgeflock/client",),
        (
            "tests/faults/test_client_deaths.py",
            "tests/faults/test_network.py",
            "tests/faults/test_arrivals.py",
        ),
    ),
    "data, models": (
        (
            "common/edgeflock/common/datasets",
            "common/edgeflock/common/partitions",
            "common/edgeflock/common/models",
        ),
        (),
    ),
    "start, commands, pages": (("server", "common", "client", "lab"), ("tests/faults/test_bad_input.py",)),
}

# What runs in processes alone beyond that, and the tests that start these: the first that fits.
PROCESSES: dict[str, tuple[str, ...]] = {
    "server/edgeflock/server/service/central.py": ("tests/methods/test_centralized.py",),
    "server/edgeflock/server/service/certificates.py": ("tests/faults/test_tls.py",),
    "server/edgeflock/server/web/standing.py": ("tests/wire/test_dashboard_stays.py",),
    "server/edgeflock/server/web": ("tests/wire/test_dashboard.py", "tests/wire/test_dashboard_stays.py"),
    "server/edgeflock/server/console": ("tests/wire/test_console.py", "tests/wire/test_lab_demo.py"),
    "server/edgeflock/server/start/children.py": (
        "tests/wire/test_tensorboard.py",
        "tests/wire/test_dashboard.py",
    ),
    "server": (
        "tests/wire/test_console.py",
        "tests/wire/test_lab_run.py",
        "tests/faults/test_run_directory.py",
        "tests/faults/test_sigterm.py",
        "tests/faults/test_run_ends.py",
    ),
}


def processes(path: str) -> tuple[str, ...]:
    """Return the tests that reach a module in processes, where no line is seen."""
    beyond = next((tests for place, tests in PROCESSES.items() if path.startswith(place)), ())
    return tuple(dict.fromkeys((*beyond, *STRATA[stratum(path)][1])))


def stratum(path: str) -> str:
    return next(name for name, (places, _) in STRATA.items() if path.startswith(places))


def all_changes() -> list[Change]:
    files = sorted(path for wing in WINGS for path in (ROOT / wing).rglob("*.py") if "_pb2" not in path.name)
    return [change for path in files for change in changes(str(path.relative_to(ROOT)), path.read_bytes())]


def sample(size: int, seed: int, only: str) -> list[Change]:
    """Draw as many from every stratum, in an order that the seed alone decides."""
    by_stratum: dict[str, list[Change]] = {name: [] for name in STRATA if only in name}
    for change in all_changes():
        if (name := stratum(change.path)) in by_stratum:
            by_stratum[name].append(change)
    each = math.ceil(size / max(1, len(by_stratum)))
    drawn = [_drawn(found, each, f"{seed} {name}") for name, found in by_stratum.items()]
    return [change for row in zip(*drawn, strict=False) for change in row]


def _drawn(found: list[Change], count: int, seed: str) -> list[Change]:
    """Draw that many that can be run."""
    order = random.Random(seed).sample(found, len(found))
    fit = (change for change in order if can_be_run(change, (ROOT / change.path).read_bytes()))
    return [change for change, _ in zip(fit, range(count), strict=False)]


class Book:
    """What was tried, a line each."""

    def __init__(self) -> None:
        KEPT.mkdir(parents=True, exist_ok=True)
        self._path = KEPT / "tried.jsonl"
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        self.rows = [json.loads(line) for line in lines]

    def has(self, change: Change) -> bool:
        return any(row["change"] == asdict(change) for row in self.rows)

    def add(self, tried: Tried) -> None:
        row = asdict(tried)
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def equivalents() -> dict[str, str]:
    """Return the changes that change nothing, with the sentence why."""
    return {
        row["change"]: row["why"] for row in tomllib.loads(JUDGED.read_text("utf-8")).get("equivalent", [])
    }


def try_out(copy: Copy, reach: Reach, change: Change) -> Tried:
    """Try a change against the quickest tests that reach it, then against those with processes."""
    near = list(_within(reach.tests(change.path, change.line), reach.seconds))
    tried = copy.tried(change, near, _LIMIT_S)
    if tried.killed:
        return tried
    return copy.tried(change, processes(change.path), _LIMIT_S)


def _within(tests: Iterable[str], seconds: dict[str, float]) -> Iterator[str]:
    spent = 0.0
    for test in tests:
        spent += seconds[test]
        if spent > _BEFORE_PROCESSES_S:
            return
        yield test


def run_sample(size: int, seed: int, only: str, jobs: int) -> None:
    reach, book, free = Reach(KEPT / "reach", ROOT), Book(), SimpleQueue[Copy]()
    for number in range(jobs):
        free.put(Copy(ROOT, KEPT / f"copy-{number}"))

    def one(change: Change) -> Tried:
        copy = free.get()
        try:
            return try_out(copy, reach, change)
        finally:
            free.put(copy)

    drawn = [change for change in sample(size, seed, only) if not book.has(change)]
    with ThreadPoolExecutor(jobs) as pool:
        for tried in pool.map(one, drawn):
            book.add(tried)
            word = f"noticed by {tried.by}" if tried.killed else "NOBODY NOTICES"
            print(f"{tried.change.path}:{tried.change.line} {tried.change.kind}: {word}", flush=True)  # noqa: T201


def table() -> str:
    """Return the score of each stratum and what survives."""
    book, same = Book(), equivalents()
    lines = ["| | tried | equivalent | noticed of the others (95 %) |", "| --- | --- | --- | --- |"]
    keys = {id(row): Change(**row["change"]).key for row in book.rows}
    for name in [*STRATA, ""]:
        rows = [row for row in book.rows if not name or stratum(row["change"]["path"]) == name]
        real = [row for row in rows if keys[id(row)] not in same]
        killed = sum(bool(row["by"]) for row in real)
        lines.append(
            f"| {name or 'all'} | {len(rows)} | {len(rows) - len(real)} | {_share(killed, len(real))} |"
        )
    alive = [keys[id(row)] for row in book.rows if not row["by"] and keys[id(row)] not in same]
    return "\n".join([*lines, "", *(f"- {key}" for key in sorted(alive))])


def _share(part: int, whole: int) -> str:
    """Return a share with Wilson's interval."""
    if not whole:
        return "-"
    z, p = 1.96, part / whole
    middle, around = p + z * z / (2 * whole), z * math.sqrt((p * (1 - p) + z * z / (4 * whole)) / whole)
    low, high = ((middle + sign * around) / (1 + z * z / whole) for sign in (-1, 1))
    return f"{p:.0%} ({low:.0%} to {high:.0%})"


def record_reach() -> int:
    """Run the tests of unit, wire and methods once and write down what each reaches."""
    environ = {**os.environ, "MUTANTS_REACH": str(KEPT / "reach"), "OMP_NUM_THREADS": "1"}
    words = (
        "-m",
        "not long and not hour",
        "-n",
        "2",
        "-q",
        "-p",
        "support.mutants.reach",
        "--timeout",
        "600",
    )
    places = ("tests/unit", "tests/wire", "tests/methods")
    return subprocess.run([sys.executable, "-m", "pytest", *words, *places], cwd=ROOT, env=environ).returncode


def main() -> None:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("reach")
    commands.add_parser("table")
    trying = commands.add_parser("try")
    trying.add_argument("--sample", type=int, default=300)
    trying.add_argument("--seed", type=int, default=1)
    trying.add_argument("--wing", default="", help="a part of a stratum's name")
    trying.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    match given.command:
        case "reach":
            sys.exit(record_reach())
        case "try":
            run_sample(given.sample, given.seed, given.wing, given.jobs)
        case _:
            print(table())  # noqa: T201


if __name__ == "__main__":
    main()
