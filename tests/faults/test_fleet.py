"""fl-lab fleet on devices that stay: one is killed, the driver too, and the grid ends in the same bits."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.compare.fleet import fleet
from edgeflock.server.journal.reader import Feed
from support.commands import processes_of, run, start
from support.processes import Flock, Program, flock, until

GRID = """
[grid]
method = ["scaffold", "fedavg"]
[run]
model = "linear"
rounds = 30
clients = 3
grace = "600s"
"""


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Flock]:
    with flock(tmp_path) as made:
        yield made


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def begin(devices: Flock, name: str, address: str) -> Program:
    state = devices.folder / "devices" / name
    words = (f"--server={address}", f"--id={name}", f"--state-dir={state}", "--stay", "--log-format=json")
    return devices.start("fl-client", *words)


def models(out: Path) -> set[str]:
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob("cells/*/model.safetensors")}


def committed(out: Path, *, cells: int, rounds: int) -> Callable[[], bool | None]:
    """Whether the newest of so many cells has committed so many rounds."""

    def look() -> bool | None:
        counts = list[int]()
        for folder in (out / "cells").glob("*/"):
            with contextlib.closing(Feed(folder)) as feed:
                counts.append(sum(event.name == "round_committed" for event in feed.read()))
        return True if len(counts) == cells and min(counts) >= rounds else None

    return look


def test_a_grid_on_a_fleet_outlives_a_device_and_its_driver(devices: Flock, tmp_path: Path) -> None:
    grid, out, alone = tmp_path / "g.toml", tmp_path / "out", tmp_path / "alone"
    grid.write_text(GRID)
    address = f"127.0.0.1:{free_port()}"
    c0, _, _ = (begin(devices, f"c{number}", address) for number in range(3))
    command = ("fleet", grid, f"--out={out}", f"--listen={address}")
    driver = start("fl-lab", *command)
    until(committed(out, cells=1, rounds=2), lambda: "the first cell's rounds")
    c0.kill()
    begin(devices, "c0", address)
    until(committed(out, cells=2, rounds=2), lambda: "the second cell's rounds")
    driver.send_signal(signal.SIGKILL)
    driver.communicate(timeout=60)
    until(
        lambda: not [line for line in processes_of(out) if "fl-server" in line] or None, lambda: "the server"
    )

    done = run("fl-lab", *command, timeout_s=180)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 finished before; 1 at a time" in done.stdout
    found = list(csv.DictReader((out / "cells.csv").read_text("utf-8").splitlines()))
    assert [(row["method"], float(row["total_rounds"]), row["failure"]) for row in found] == [
        ("scaffold", 30, ""),
        ("fedavg", 30, ""),
    ]
    assert all(program.process.is_alive() for program in devices.programs if program is not c0), "they stay"

    assert run("fl-lab", "compare", grid, f"--out={alone}", timeout_s=180).returncode == 0
    assert models(out) == models(alone)


@pytest.mark.parametrize(
    ("more", "words", "said"),
    [
        ("processes = 1", ["--listen=:93"], "processes in {grid}: the devices come by themselves"),
        ("listen = ':1'", ["--listen=:93"], "listen in {grid}: --listen says where the devices dial"),
        ("", ["--listen=127.0.0.1:0"], "--listen is '127.0.0.1:0', allowed is a port from 1 to 65535"),
        (
            "",
            ["--listen=:93", "--listen=:93"],
            "--listen :93 is given twice: an address is of one run at a time",
        ),
        (
            "",
            ["--listen=:93", "--tls-cert=x.pem"],
            "--tls-cert and --tls-key go together: one of them is not given",
        ),
        (
            "",
            ["--listen=192.0.2.1:93"],
            "--listen 192.0.2.1:93 reaches beyond this machine without encryption: give --tls-cert and "
            "--tls-key, a loopback address, or --insecure if every machine of that network is trusted",
        ),
    ],
)
def test_what_a_fleet_cannot_do_is_refused_in_a_sentence(
    tmp_path: Path, more: str, words: list[str], said: str
) -> None:
    grid, out = tmp_path / "g.toml", tmp_path / "out"
    grid.write_text(f"{GRID}{more}\n")
    with pytest.raises(EdgeflockError) as refused:
        fleet.main([str(grid), f"--out={out}", *words], standalone_mode=False)
    assert (str(refused.value), refused.value.exit_code) == (said.format(grid=grid), 2)
    assert not out.exists()
