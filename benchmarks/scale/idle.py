"""Devices that are connected and have nothing to do: memory and CPU of the server for each, plain and TLS."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil

from benchmarks.children import Children, environment, program
from benchmarks.scale import idlers
from benchmarks.scale.asked import KIB, Asked, Family, Found, Row
from benchmarks.scale.fleet import Fleet
from edgeflock.lab.certs.authority import Authority

MOST = 3000  # connections of one benchmark: beyond, the handshakes take longer than it may
_START_S, _SETTLE_S = 60.0, 3.0


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    made = Authority.open(folder / "certificates", timedelta(days=1))
    pair = made.server(("127.0.0.1",))
    secure = (f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}")
    for clients in asked.upto(MOST):
        for words, flags, authority in (("plain", (), ()), ("TLS", secure, (str(made.path),))):
            fleet = replace(Fleet(clients + 1), server=flags)  # one never comes, so nothing begins
            place = folder / f"{clients}-{words}"
            found = _connected(fleet, place, authority, 10.0 if asked.quick else 40.0, asked.limit_s)
            yield Row((f"{clients:,}, {words}", *found))


def _connected(
    fleet: Fleet, folder: Path, authority: tuple[str, ...], seconds: float, limit_s: float
) -> tuple[float, float, float]:
    """Return the server's KiB, its CPU ms of the arrival, and its CPU us a second, for each connection."""
    folder.mkdir(parents=True)
    (flags, _), clients = fleet.flags(folder), fleet.clients - 1
    run, log = folder / "run", folder / "log"
    with Children() as children:
        given = ["--run-dir", str(run), "--listen", "127.0.0.1:0", *flags]
        server = children.start("fl-server", [*program("fl-server"), *given], log, environment())
        children.wait_until((run / "address").exists, _START_S)
        time.sleep(_SETTLE_S)
        looked = psutil.Process(server.process.pid)
        idle, used = looked.memory_info().rss, _cpu_s(looked)
        command = [sys.executable, "-m", idlers.__name__, (run / "address").read_text().strip(), str(clients)]
        listening = children.start("idlers", [*command, *authority], folder / "idlers.log", environment())
        children.wait_until(lambda: idlers.HERE in listening.said(), limit_s)
        time.sleep(_SETTLE_S)
        held, arrival, begun = looked.memory_info().rss - idle, _cpu_s(looked) - used, time.monotonic()
        resting = _cpu_s(looked)
        time.sleep(seconds)
        rate = (_cpu_s(looked) - resting) / (time.monotonic() - begun)
        children.check()
        children.kill(server)
        children.kill(listening)
    return held / KIB / clients, 1e3 * arrival / clients, 1e6 * rate / clients


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


FAMILY = Family(
    title="Connected, and nothing to do",
    columns=(
        "connections",
        "server's memory for each, KiB",
        "CPU of each arrival, ms",
        "CPU for each, us a second",
    ),
    measure=measure,
    about="Clients that have joined and listen, each over a connection of its own; pings every 20 s.",
)
