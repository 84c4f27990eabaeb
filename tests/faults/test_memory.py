"""The server's memory does not grow with its clients: some MiB for each of a large model, under a limit."""

from __future__ import annotations

import contextlib
import resource
import shutil
import statistics
from pathlib import Path

import pytest

from faults.conftest import Figure
from support import processes
from support.processes import Flock, Program

MIB = 1 << 20
SLOPE_MIB = 4.0  # per client
CREDIT_MIB = 32  # the default of --credit-mib
STREAM_MIB = 0.25  # that each may send, credit or not
OTHER_MIB = 64  # gRPC's own buffers, the broadcast's last chunks, stacks of threads that come late
HOSTS = 4  # client processes
SMALL, LARGE = "[1500,1000]", "[4000,2730]"  # 6.4 and 44.8 MB


def beyond_idle(folder: Path, hidden: str, clients: int) -> float:
    """Return how many MiB the server needed at most beyond what it has when it is idle.

    It may not allocate more than DESIGN rule 8 says: the state and its sums, a model each, one for
    evaluation, and the credit; and some for what is nobody's.
    """
    folder.mkdir()
    with processes.flock(folder) as flock:
        model = ("--model=mlp", f"--model-arg=hidden={hidden}", "--steps=0", "--eval-every=0")
        server = flock.server(f"--clients={clients}", "--rounds=2", "--deadline=600", "--seed=4", *model)
        idle, size = mib_of(server, "VmRSS"), checkpoint_mib(flock)
        limit(server, 3 * size + CREDIT_MIB + STREAM_MIB * clients + OTHER_MIB)
        hosted = [flock.client(ids, "--parallel=4") for ids in hosts(clients)]
        peak = watch_peak(server)
        assert [server.ended(), *(client.ended() for client in hosted)] == [0] * (1 + len(hosted))
    shutil.rmtree(folder)
    return peak - idle


def hosts(clients: int) -> list[str]:
    ids = [f"c{number}" for number in range(clients)]
    return [",".join(ids[start::HOSTS]) for start in range(min(HOSTS, clients))]


def checkpoint_mib(flock: Flock) -> float:
    return (flock.run_dir / "rounds" / "000000" / "model.safetensors").stat().st_size / MIB


def limit(server: Program, more_mib: float) -> None:
    """Let the process allocate so much more than it has by now, and not a page beyond it."""
    most = int((mib_of(server, "VmData") + more_mib) * MIB)
    assert server.process.pid is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (most, most))


def mib_of(server: Program, name: str) -> float:
    """Return a number of the process's status."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def watch_peak(server: Program) -> float:
    """Wait for the end of the process and return the most that was resident."""
    peak = 0.0
    while server.process.is_alive():
        with contextlib.suppress(OSError, StopIteration):  # it is on its way out
            peak = mib_of(server, "VmHWM")
        server.process.join(0.1)
    return peak


@pytest.mark.promise("R10")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("hidden", "numbers"),
    [(SMALL, (2, 8, 24)), pytest.param(LARGE, (2, 8, 32, 64), marks=pytest.mark.long)],
)
def test_the_servers_memory_is_bounded(
    tmp_path: Path, figure: Figure, hidden: str, numbers: tuple[int, ...]
) -> None:
    peaks = []
    for clients in numbers:
        peaks.append(beyond_idle(tmp_path / str(clients), hidden, clients))
        figure(f"MiB beyond idle, {clients} clients of {hidden}", peaks[-1])
    slope = statistics.linear_regression(numbers, peaks).slope
    figure(f"MiB per added client of {hidden}", slope)
    assert slope <= SLOPE_MIB
