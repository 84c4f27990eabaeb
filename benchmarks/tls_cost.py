"""What TLS takes: whole rounds in which nothing is trained, with it and in plain text, taking turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from benchmarks import noop_run
from benchmarks.result import Benchmark, Row, against
from edgeflock.lab.certs.authority import Authority

CLIENTS, SIZE_MIB, ROUNDS = 8, 10.4, 40


def measure(repeats: int) -> Iterator[Row]:
    """Take plain text before and after each run with TLS, and compare with their mean."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = Authority.open(folder / "certificates", timedelta(days=1))
        pair = made.server(("127.0.0.1",))
        server = (f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}")
        plain, pairs = _round_s(folder / "plain"), list[tuple[float, float]]()
        for turn in range(repeats):
            with_tls = _round_s(folder / f"tls-{turn}", server, (f"--tls-ca={made.path}",))
            after = _round_s(folder / f"plain-{turn}")
            pairs.append(((plain + after) / 2, with_tls))
            plain = after
    row = against(f"no-op round with TLS, {CLIENTS} x {SIZE_MIB} MiB", "s", pairs, 2.0, "plain text")
    yield replace(row, target="reported", held=True)


def _round_s(folder: Path, server: tuple[str, ...] = (), clients: tuple[str, ...] = ()) -> float:
    run = noop_run.run(
        folder,
        clients=CLIENTS,
        mib=SIZE_MIB,
        rounds=ROUNDS,
        sample_s=1.0,
        at_server=server,
        at_clients=clients,
    )
    return statistics.median(run.rounds_s(noop_run.WARM_UP))


BENCHMARKS = {"tls": Benchmark("a no-op round with TLS against plain text", measure)}
