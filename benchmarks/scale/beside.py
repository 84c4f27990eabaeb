"""The same rounds in others: Flower's simulation on Ray and pfl-research, alternating with ours in one run.

Everybody in every round, 65,536 float32 both ways, nothing to train. Each of the others is in an environment
of its own, which is made by hand (the sentence that stands in place of its row says how) and thrown away.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.children import ROOT, Failed
from benchmarks.live_run import Watched
from benchmarks.scale.asked import KIB, MIB, Asked, Family, Found, Row, Skipped
from benchmarks.scale.fleet import Fleet, Seen, watched
from benchmarks.scale.processes import SAMPLE_S, Processes, with_children

CLIENTS, ELEMENTS = (100, 1000), 65_536
_SKIP = 1  # rounds: in the first a program starts its workers


@dataclass(frozen=True)
class Other:
    """A program beside ours."""

    name: str
    script: str
    module: str  # by which it is found in an environment
    install: str  # how to make one


OTHERS = (
    Other("Flower's simulation on Ray", "flower.py", "flwr.simulation", "flwr[simulation]==1.41.0"),
    Other("pfl-research, one process, no network", "pfl_research.py", "pfl.aggregate", "pfl torch==2.13.0"),
)


@dataclass(frozen=True)
class Measured:
    """One run: medians of its rounds but the first."""

    round_s: float
    cpu_ms: float  # of all processes, for each client
    peak_mib: float  # resident memory of all processes together


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    there, missing = _there(asked.python)
    for clients in CLIENTS[:1] if asked.quick else CLIENTS:
        rounds = 6 if clients > CLIENTS[0] else 12
        found: dict[str, list[Measured]] = {"edgeflock, one fl-server, one fl-client": []}
        for turn in range(asked.repeats):
            place = folder / f"ours-{clients}-{turn}"
            found[next(iter(found))].append(_ours(place, clients, rounds, asked.limit_s))
            for other, python in there:
                one = _other(other, python, clients, rounds, asked.limit_s)
                found.setdefault(other.name, []).append(one)
        for name, runs in found.items():
            yield Row((name, clients, *map(statistics.median, zip(*map(_cells, runs), strict=True))))
    yield from missing


def _cells(one: Measured) -> tuple[float, float, float]:
    return one.round_s, one.cpu_ms, one.peak_mib


def _there(given: Mapping[str, str]) -> tuple[list[tuple[Other, str]], list[Skipped]]:
    """Return those that have an interpreter, named or at the usual place, and why the others have none."""
    there, missing = list[tuple[Other, str]](), list[Skipped]()
    for other in OTHERS:
        usual = ROOT / "build" / "beside" / other.script.removesuffix(".py")
        python = given.get(usual.name, str(usual / "bin" / "python"))
        test = ["-c", f"import importlib.util as i, sys; sys.exit(not i.find_spec({other.module!r}))"]
        if shutil.which(python) and not subprocess.run([python, *test], capture_output=True).returncode:
            there.append((other, python))
        else:
            way = f"`python -m venv {usual.relative_to(ROOT)} && {usual.relative_to(ROOT)}/bin/pip install"
            words = " ".join(f"'{word}'" for word in other.install.split())
            missing.append(Skipped(f"{other.name} was not taken: it is not installed; {way} {words}`."))
    return there, missing


def _ours(folder: Path, clients: int, rounds: int, limit_s: float) -> Measured:
    fleet = Fleet(clients, ELEMENTS * 4 / KIB, rounds)
    run = watched(folder, fleet, limit_s)
    seen = Seen.of(folder, fleet, run, _SKIP)
    return Measured(seen.round_s, seen.server_ms + seen.clients_ms, _peak_mib(run))


def _peak_mib(run: Watched) -> float:
    return sum(max(one.peak_rss for one in samples) for samples in (run.server, *run.clients)) / MIB


def _other(other: Other, python: str, clients: int, rounds: int, limit_s: float) -> Measured:
    script = Path(__file__).parent / "others" / other.script
    sizes = [str(number) for number in (clients, rounds, ELEMENTS)]
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as temp:  # sockets have short paths
        log = Path(temp, "log")
        with log.open("wb") as file, Path(temp, "said").open("w+") as said:
            process = subprocess.Popen(
                [*_alone(), python, str(script), *sizes], stdout=said, stderr=file, env=_environment(temp)
            )
            seen = _look(process, limit_s)
            told = [line for line in Path(said.name).read_text().splitlines() if line.startswith('{"at"')]
        if process.returncode or len(told) < rounds:
            raise Failed(f"{other.name} has not held {rounds} rounds: {log.read_text()[-500:]}")
    return _figures(other, clients, list(map(json.loads, told)), seen)


def _look(process: subprocess.Popen[bytes], limit_s: float) -> Processes:
    seen, root, end = Processes(), psutil.Process(process.pid), time.monotonic() + limit_s
    while process.poll() is None:
        if time.monotonic() > end:
            for one in with_children(root):
                one.kill()
        else:
            seen.look(root)
            time.sleep(SAMPLE_S)
    return seen


def _figures(other: Other, clients: int, told: Sequence[Mapping[str, float]], seen: Processes) -> Measured:
    if any(one["answered"] != clients for one in told):
        raise Failed(f"{other.name}: not all {clients} clients have answered in every round")
    at = [one["at"] for one in told[_SKIP - 1 :]]
    seconds = statistics.median(end - begin for begin, end in pairwise(at))
    cpu = seen.used(at[0], at[-1]) / (len(at) - 1)
    return Measured(seconds, 1e3 * cpu / clients, seen.peak_rss / MIB)


def _alone() -> list[str]:
    """Return what gives a program a network of its own, where allowed: Ray listens on all there is."""
    own = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    allowed = shutil.which("unshare") and not subprocess.run([*own, "true"], capture_output=True).returncode
    return own if allowed else []


def _environment(temp: str) -> dict[str, str]:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **quiet, "SCALE_TEMP": f"{temp}/ray", "FLWR_HOME": f"{temp}/flwr", "PYTHONPATH": ""}


FAMILY = Family(
    title="Beside Flower's simulation and pfl-research",
    columns=(
        "program",
        "clients",
        "round, s",
        "CPU of all processes per client and round, ms",
        "memory of all processes at most, MiB",
    ),
    measure=measure,
    about="Everybody in every round, 65,536 float32 both ways, no training; the programs take turns. Ours "
    "goes over sockets and disks (spool, outbox, journal, fsync); Flower's over Ray's object store, with two "
    "actors; pfl-research calls functions in one process, with one step that costs nothing.",
)
