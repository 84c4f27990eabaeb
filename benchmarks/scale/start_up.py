"""From a command to its first round: runs of the lab by processes, cells of a comparison beside their rounds.

With `--before DIR`, a folder with the commands of an earlier version, both take turns.
"""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.children import Failed, environment
from benchmarks.live_run import commits
from benchmarks.scale.asked import Asked, Family, Found, Row, at_most

PROCESSES = (4, 10, 20)
MOST = {4: 0.35, 20: 0.2}  # of before, a run by processes
MOST_CELL_S = 2.0
_ROUNDS = 20
_GRID = """
[grid]
seed = [{seeds}]

[run]
clients = 4
rounds = 10
"""


@dataclass(frozen=True)
class Took:
    """One command."""

    seconds: float
    cpu_s: float
    rounds_s: float  # of that, from the first opening to the last commit, of all its runs


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    ours = str(Path(sys.executable).parent)
    for processes in PROCESSES[:1] if asked.quick else PROCESSES:
        pairs = _pairs(asked, folder, f"run-{processes}", ours, partial(_run, processes))
        yield _row(f"fl-lab run, {processes} client processes, {_ROUNDS} rounds", pairs)
        if asked.before and processes in MOST:
            name = f"fl-lab run, {processes} client processes, seconds to before"
            yield at_most(name, _ratio(pairs), MOST[processes])
    cells = 2 if asked.quick else 6
    pairs = _pairs(asked, folder, "compare", ours, partial(_compare, cells))
    yield _row(f"fl-lab compare, {cells} cells of 10 rounds, 4 client processes each", pairs)
    beside = statistics.median((after.seconds - after.rounds_s) / cells for _, after in pairs)
    yield at_most("a cell of compare beside its rounds, s", beside, MOST_CELL_S)


Pairs = list[tuple[Took | None, Took]]


def _pairs(asked: Asked, folder: Path, name: str, ours: str, take: Callable[[str, Path], Took]) -> Pairs:
    """Take before and after in turns; each once unmeasured, so that no page is read from the disk."""
    found = Pairs()
    for turn in range(asked.repeats + 1):
        before = take(asked.before, folder / f"{name}-{turn}-before") if asked.before else None
        found.append((before, take(ours, folder / f"{name}-{turn}")))
    return found[1:]


def _run(processes: int, bin: str, at: Path) -> Took:
    flags = ["--clients", str(processes), "--rounds", str(_ROUNDS), "--run-dir", str(at)]
    return _timed([f"{bin}/fl-lab", "run", *flags], at, at.with_suffix(".log"))


def _compare(cells: int, bin: str, at: Path) -> Took:
    grid = at.with_suffix(".toml")
    grid.write_text(_GRID.format(seeds=", ".join(map(str, range(cells)))))
    command = [f"{bin}/fl-lab", "compare", str(grid), "--out", str(at), "--jobs", "1"]
    return _timed(command, at, at.with_suffix(".log"))


def _timed(command: list[str], at: Path, log: Path) -> Took:
    used, begun = _children_cpu_s(), time.monotonic()
    with log.open("wb") as file:
        code = subprocess.run(command, env=environment(), stdout=file, stderr=file, check=False).returncode
    if code:
        raise Failed(f"{' '.join(command)} ended with exit code {code}: {log.read_text()[-300:]}")
    seconds, cpu = time.monotonic() - begun, _children_cpu_s() - used
    return Took(seconds, cpu, sum(map(_rounds_s, at.rglob("journal.sqlite"))))


def _rounds_s(journal: Path) -> float:
    with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
        opened = connection.execute("SELECT min(at) FROM events WHERE name = 'round_opened'").fetchone()[0]
    return float(commits(journal)[-1].at - opened)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ratio(pairs: Pairs) -> float:
    return statistics.median(after.seconds / before.seconds for before, after in pairs if before)


def _row(name: str, pairs: Pairs) -> Row:
    before = [one for one, _ in pairs if one]
    after = [one for _, one in pairs]

    def middle(of: list[Took], what: Callable[[Took], float]) -> float | str:
        return statistics.median(map(what, of)) if of else "-"

    cells = [middle(of, what) for what in (_seconds, _cpu, _rounds) for of in (before, after)]
    return Row((name, *cells, _ratio(pairs) if before else "-"))


def _seconds(took: Took) -> float:
    return took.seconds


def _cpu(took: Took) -> float:
    return took.cpu_s


def _rounds(took: Took) -> float:
    return took.rounds_s


FAMILY = Family(
    title="From a command to its rounds",
    columns=(
        "command",
        "before, s",
        "now, s",
        "CPU before, s",
        "CPU now, s",
        "of it rounds, before, s",
        "now, s",
        "seconds, now to before",
    ),
    measure=measure,
    about="mlp on digits, the second time and later. `--before DIR` names the commands of an earlier "
    "version, which take turns with these; CPU is that of all processes that the command has waited for.",
)
