"""The local training step as rows of the table; measured by local_step.py in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.children import Failed, environment
from benchmarks.result import Benchmark, Row

_LIMIT_S = 900


def measure(repeats: int) -> Iterator[Row]:
    """It has repeats of its own, in which its variants take turns."""
    with tempfile.TemporaryDirectory() as name:
        found = Path(name) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.local_step", "--json", str(found)]
        try:
            subprocess.run(
                command, env=environment(), timeout=_LIMIT_S, check=True, stdout=subprocess.DEVNULL
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Failed(str(error)) from None
        for row in json.loads(found.read_text()):
            yield Row(
                name=f"local step, {row['case']}",
                unit="ms",
                baseline=row["base_ms"],
                measured=row["ours_ms"],
                ratio=row["ratio"],
                target=f"<= {row['target']:g}x",
                held=row["ok"],
                against=row["against"],
            )


BENCHMARKS = {"local-step": Benchmark("local training step, FedProx against FedAvg", measure)}
