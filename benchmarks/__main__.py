"""`python -m benchmarks`: run benchmarks chosen by name, print the table, write the results as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, Failed
from benchmarks.result import Benchmark, Row, table

# In the order in which they run: what starts processes before what fills this process with torch.
FAMILIES = (
    "cli_help",
    "resume",
    "noop_round",
    "tls_cost",
    "layout_cost",
    "client_cpu",
    "server_memory",
    "soak",
    "metering",
    "dashboard",
    "dashboard_long",
    "fold",
    "local_step",
    "server_test",
    "method_fold",
    "method_step",
)


def main() -> int:
    asked = _arguments()
    known = _known()
    if asked.list:
        print("\n".join(f"{name:18} {found.title}" for name, found in known.items()))
        return 0
    rows, failures = list[Row](), list[str]()
    for name in _chosen(known, asked.names):
        print(f"{name}: {known[name].title} ...", flush=True)
        try:
            rows.extend(known[name].measure(asked.repeats))
        except Failed as error:
            failures.append(f"{name} could not be measured: {error}")
    _write(asked.json, rows, asked.repeats)
    print("", table(rows), "", *failures, f"written to {asked.json}", sep="\n")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks, or beginnings of names; all if none is given")
    parser.add_argument("--list", action="store_true", help="show the names and end")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is taken (default: 3)")
    default = ROOT / "build" / "benchmarks.json"
    parser.add_argument("--json", type=Path, default=default, help="where results go (default: build/)")
    asked = parser.parse_args()
    if asked.repeats < 1:
        parser.error(f"--repeats {asked.repeats} is not 1 or more")
    return asked


def _known() -> dict[str, Benchmark]:
    known: dict[str, Benchmark] = {}
    for family in FAMILIES:
        known |= importlib.import_module(f"benchmarks.{family}").BENCHMARKS
    return known


def _chosen(known: dict[str, Benchmark], names: Sequence[str]) -> list[str]:
    """Return the names that are meant, in the families' order; short variants only by their own name."""
    for name in names:
        if not any(one.startswith(name) for one in known):
            sys.exit(f"no benchmark begins with {name!r}; there are: {', '.join(known)}")
    if not names:
        return [name for name, found in known.items() if not found.quick]
    return [
        name
        for name, found in known.items()
        if name in names or (not found.quick and any(name.startswith(one) for one in names))
    ]


def _write(path: Path, rows: Sequence[Row], repeats: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {**_machine(), "repeats": repeats, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=2) + "\n")


def _machine() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
