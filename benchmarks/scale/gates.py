"""The same fleet by way of no gate, one and two, and of two of which one is killed: bits, CPU and seconds."""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.children import Children, environment, program
from benchmarks.live_run import commits, journal
from benchmarks.scale.asked import MIB, Asked, Family, Found, Held, Row, Skipped, at_most
from benchmarks.scale.fleet import Fleet
from benchmarks.scale.processes import SAMPLE_S, Processes, with_children

KIB, HOSTS, ROUNDS, MOST = 256.0, 2, 12, 1.15
_SKIP, _KILLED_AFTER = 2, 4  # commits
_GATE = "edgeflock.server.gate"  # in the command line of a gate that the server has started
_START_S = 90.0


@dataclass(frozen=True)
class Gated:
    """One run."""

    rounds_s: list[float]
    coordinator_ms: float  # CPU of the server, for each client and round
    server_ms: float  # with its gates
    clients_ms: float
    peak_mib: float  # of server and gates together
    digest: str


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    told = subprocess.run(
        [*program("fl-server"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    if "--gates" not in told:
        yield Skipped("Gates were not taken: this fl-server has none.")
        return
    clients = 100 if asked.quick else 1000
    alone: Gated | None = None
    for gates, kills in ((0, False), (1, False), (2, False), (2, True)):
        rounds = 40 if asked.quick else ROUNDS
        fleet = Fleet(clients, KIB, rounds, hosts=HOSTS, server=("--gates", str(gates)) if gates else ())
        name = f"{gates or 'no'} {'gate' if gates < 2 else 'gates'}{', one killed' if kills else ''}"
        run = _run(fleet, folder / name.replace(" ", "-"), asked.limit_s, kills=kills)
        alone = alone or run
        same = run.digest == alone.digest
        usual, longest = statistics.median(run.rounds_s), max(run.rounds_s)
        cells = (
            run.coordinator_ms,
            run.server_ms,
            run.clients_ms,
            run.peak_mib,
            "the same" if same else "another",
        )
        yield Row((name, usual, longest - usual, *cells))
        yield Held(f"the model with {name} is that of one process", float(same), "1", same)
        if gates and not kills:
            yield at_most(
                f"CPU of server and gates with {name}, to none", run.server_ms / alone.server_ms, MOST
            )


def _run(fleet: Fleet, folder: Path, limit_s: float, *, kills: bool) -> Gated:
    folder.mkdir(parents=True)
    flags, hosts = fleet.flags(folder)
    run, log = folder / "run", folder / "log"
    alone, seen, others, killed = Processes(), Processes(), Processes(), not kills
    with Children() as children:
        given = ["--run-dir", str(run), "--listen", "127.0.0.1:0", *flags]
        server = children.start("fl-server", [*program("fl-server"), *given], log, environment())
        children.wait_until((run / "address").exists, _START_S)
        address = (run / "address").read_text().strip()
        root, theirs = psutil.Process(server.process.pid), list[psutil.Process]()
        for number, its in enumerate(hosts):
            words = ["--server", address, "--state-dir", str(folder / f"state-{number}"), *its]
            host = children.start(f"h{number}", [*program("fl-client"), *words], log, environment())
            theirs.append(psutil.Process(host.process.pid))
        end = time.monotonic() + limit_s
        while server.code is None and time.monotonic() < end:
            children.check()
            alone.look(root, alone=True)
            seen.look(root)
            others.look(*theirs)
            if not killed and _done(folder) >= _KILLED_AFTER:
                killed = _kill_one(root)
            time.sleep(SAMPLE_S)
        children.finish(_START_S if server.code is not None else 0.0)
    return _figures(fleet, folder, alone, seen, others)


def _done(folder: Path) -> int:
    return max((commit.round for commit in commits(journal(folder))), default=0)


def _kill_one(root: psutil.Process) -> bool:
    """Kill a gate as a power cut would, in the midst of a round."""
    gates = [one for one in with_children(root) if any(_GATE in word for word in one.cmdline())]
    gates[0].kill()
    return True


def _figures(fleet: Fleet, folder: Path, alone: Processes, seen: Processes, others: Processes) -> Gated:
    at = [commit.at for commit in commits(journal(folder))[_SKIP:]]
    parts = fleet.clients * (len(at) - 1)
    server = seen.used(at[0], at[-1])
    model = (folder / "run" / "model.safetensors").read_bytes()
    return Gated(
        rounds_s=[end - begin for begin, end in pairwise(at)],
        coordinator_ms=1e3 * alone.used(at[0], at[-1]) / parts,
        server_ms=1e3 * server / parts,
        clients_ms=1e3 * others.used(at[0], at[-1]) / parts,
        peak_mib=seen.peak_rss / MIB,
        digest=hashlib.sha256(model).hexdigest(),
    )


FAMILY = Family(
    title="By way of gates",
    columns=(
        "clients by way of",
        "round, s",
        "the longest round, s more",
        "the server's CPU per client and round, ms",
        "with the gates', ms",
        "clients' CPU, ms",
        "server and gates at most, MiB",
        "model",
    ),
    measure=measure,
    about="1,000 hosted clients in two processes, 256 KiB, no training, gates on the same two cores: so they "
    "can only cost here, and what more cores would give is not shown. Where one is killed, it is with "
    "SIGKILL after the fourth commit.",
)
