"""`fl-client --help` against an empty Python, and whether it imports torch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.children import environment, program
from benchmarks.result import Benchmark, Row

LIMIT_S = 0.4
_TIMES = 5  # in every repeat


def measure(repeats: int) -> Iterator[Row]:
    nothing, helped = [sys.executable, "-c", "pass"], [*program("fl-client"), "--help"]
    pairs = [(_seconds(nothing), _seconds(helped)) for _ in range(_TIMES * repeats)]
    base, ours = (sorted(column)[len(pairs) // 2] for column in zip(*pairs, strict=True))
    torch = _imports_torch(helped)
    yield Row(
        name="fl-client --help",
        unit="s",
        baseline=base,
        measured=ours,
        ratio=ours / base,
        target=f"<= {LIMIT_S:g} s, no torch",
        held=ours <= LIMIT_S and not torch,
        against="python -c pass",
        details={"imports_torch": torch},
    )


def _seconds(command: Sequence[str]) -> float:
    begun = time.perf_counter()
    _run(command)
    return time.perf_counter() - begun


def _imports_torch(command: Sequence[str]) -> bool:
    """Python itself lists on standard error what it imports."""
    script = command if command[0] == sys.executable else [sys.executable, *command]
    told = _run([script[0], "-X", "importtime", *script[1:]])
    return any(line.rpartition("|")[2].strip() == "torch" for line in told.splitlines())


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


BENCHMARKS = {"cli-help": Benchmark("fl-client --help", measure)}
