"""Clients by the thousand that train nothing: one fl-server, and one fl-client that hosts them, over gRPC."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.live_run import Spec, Watched, journal, watch
from benchmarks.noop_run import MODEL
from benchmarks.scale.asked import KIB, MIB

_SAMPLE_S = 0.25


@dataclass(frozen=True)
class Fleet:
    """So many clients with a model of that size, for so many rounds."""

    clients: int
    kib: float = 10.0
    rounds: int = 6
    cohort: int = 0  # of a round; 0: all
    hosts: int = 1  # processes of clients
    server: tuple[str, ...] = ()

    def flags(self, folder: Path) -> tuple[list[str], list[list[str]]]:
        """Return those of the server and of every host; their data are written into the folder."""
        data = folder / "data.npz"
        np.savez(data, x=np.ones((8, 4), np.float32), y=np.arange(8) % 2)
        quiet = ["--log-level", "warning"]
        server = ["--model", MODEL, "--model-arg", f"mib={self.kib * KIB / MIB}", "--eval-data", str(data)]
        server += ["--eval-every", "0", "--steps", "0", "--lr", "0", "--cohort", str(self.cohort)]
        server += ["--clients", str(self.clients), "--rounds", str(self.rounds), *quiet, *self.server]
        hosted = [len(part) for part in np.array_split(np.arange(self.clients), self.hosts)]
        one = ["--model", MODEL, "--data", str(data), "--device", "cpu", *quiet]
        return server, [
            ["--id", f"h{number}", "--host-clients", str(many), *one] for number, many in enumerate(hosted)
        ]

    @property
    def asked(self) -> int:
        """How many clients a round asks."""
        return self.cohort or self.clients


def watched(folder: Path, fleet: Fleet, limit_s: float) -> Watched:
    """Run it to its end under observation; raises Failed."""
    folder.mkdir(parents=True, exist_ok=True)
    server, hosts = fleet.flags(folder)
    return watch(folder, Spec(tuple(server), tuple(map(tuple, hosts)), _SAMPLE_S, limit_s))


@dataclass(frozen=True)
class Seen:
    """The figures of one run, after its first rounds."""

    round_s: float
    server_ms: float  # CPU for each client of a round
    clients_ms: float
    server_cpu_s: float  # of a round
    idle_mib: float
    peak_mib: float
    growth_kib: float  # of the server, for each client of the roster
    fds: int
    journal_bytes: float  # for each client of a round

    @classmethod
    def of(cls, folder: Path, fleet: Fleet, run: Watched, skip: int) -> Seen:
        server = run.cpu_per_round(run.server, skip)
        clients = sum(run.cpu_per_round(samples, skip) for samples in run.clients)
        peak = max(sample.peak_rss for sample in run.server)
        written = journal(folder).stat().st_size / (fleet.asked * len(run.commits))
        return cls(
            round_s=statistics.median(run.rounds_s(skip)),
            server_ms=1e3 * server / fleet.asked,
            clients_ms=1e3 * clients / fleet.asked,
            server_cpu_s=server,
            idle_mib=run.idle_rss / MIB,
            peak_mib=peak / MIB,
            growth_kib=(peak - run.idle_rss) / KIB / fleet.clients,
            fds=max(sample.fds for sample in run.server),
            journal_bytes=written,
        )
