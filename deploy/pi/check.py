"""Says whether this project works on Raspberry Pis, emulated process by process on x86-64: that is `make pi`.

    check.py DIR    DIR takes what is needed and all that the processes say, below 1 GB

First `import torch` and a training step on the processor of each Pi. Then three federations of four on the
same shards: all x86; a Pi 3, killed and started again, a Pi 4 and two x86; a Pi 5, a Pi 3 and two x86.
Those with Pis must end in the same bits; beside x86 alone their first round may differ by rounding only.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ARM64 = Path(__file__).with_name("arm64.sh")
BIN = Path(sys.executable).parent
PIS = {"cortex-a53": "Raspberry Pi 3", "cortex-a72": "Raspberry Pi 4", "cortex-a76": "Raspberry Pi 5"}
DEVICES = ("device-a", "device-b", "desk-a", "desk-b")
ROUNDS = 12
KILLED_AFTER = 2
ROUNDING = 1e-6  # of a parameter after one round; 5e-8 was measured
PATIENCE_S = 600.0

# A step as fl-client takes them: a convolution and a matrix product, forth and back.
STEP = """
import torch
nn = torch.nn
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5408, 10))
loss = torch.nn.functional.cross_entropy(net(torch.randn(32, 1, 28, 28)), torch.randint(10, (32,)))
loss.backward()
with torch.no_grad():
    for p in net.parameters():
        p -= 0.1 * p.grad
        assert p.isfinite().all()
print("torch", torch.__version__, "trains")
"""


class Failed(Exception):
    """What was checked does not hold; the message says what."""


class Federation:
    """One run in a folder of its own, with a log of each process."""

    def __init__(self, home: Path, name: str) -> None:
        self._home, self._folder = home, home / name
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def serve(self) -> None:
        size = ["--clients", str(len(DEVICES)), "--rounds", str(ROUNDS), "--keep-every", "1"]
        place: list[str | Path] = ["--run-dir", self._folder / "run", "--listen", "127.0.0.1:0"]
        self._start("server", [BIN / "fl-server", *place, *size, "--log-format", "json"])
        self._until(self._listens, "the server listens")

    def take_part(self, client: str, cpu: str | None) -> None:
        """Start a client; on a CPU of a Pi it is emulated."""
        program = [ARM64, "client", self._home, cpu] if cpu else [BIN / "fl-client"]
        place: list[str | Path] = ["--server", (self._folder / "run" / "address").read_text().strip()]
        self._start(client, [*program, "--id", client, "--state-dir", self._folder / client, *place])

    def kill(self, client: str) -> None:
        process = self._processes.pop(client)
        process.kill()
        process.wait()

    def wait_for_round(self, number: int) -> None:
        self._until((self._model(number)).exists, f"round {number} is over")

    def wait_for_the_end(self) -> None:
        """Wait until all have ended; raises Failed with the first that did so badly."""
        for name, process in self._processes.items():
            self._until(lambda process=process: process.poll() is not None, f"{name} ends")  # type: ignore[misc]
            if process.returncode:
                raise Failed(f"{name} ended with {ending(process.returncode)}: {self._last_words(name)}")

    def first_model(self) -> dict[str, np.ndarray]:
        return load_file(self._model(1))

    def digest(self) -> str:
        return sha256(self._model(ROUNDS).read_bytes()).hexdigest()

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _start(self, name: str, command: list[str | Path]) -> None:
        with open(self._folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _model(self, number: int) -> Path:
        return self._folder / "run" / "rounds" / f"{number:06}" / "model.safetensors"

    def _listens(self) -> bool:
        return '"event": "listening"' in (self._folder / "server.log").read_text()

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not reached():
            for name, process in self._processes.items():
                if process.poll():
                    raise Failed(f"{name} ended with {ending(process.returncode)}: {self._last_words(name)}")
            if time.monotonic() > end:
                raise Failed(f"not within {PATIENCE_S:g} s: {what}; the logs are in {self._folder}")
            time.sleep(0.1)

    def _last_words(self, name: str) -> str:
        return last_line((self._folder / f"{name}.log").read_text("utf-8", "replace"))


@contextlib.contextmanager
def federation(home: Path, name: str, cpus: Mapping[str, str]) -> Iterator[Federation]:
    """Start a server and all clients; whatever happens, no process is left."""
    run = Federation(home, name)
    try:
        run.serve()
        for client in DEVICES:
            run.take_part(client, cpus.get(client))
        yield run
    finally:
        run.end()


def train_on_each(home: Path) -> None:
    """Import torch and train a step on each processor, all at the same time."""
    started = {
        cpu: subprocess.Popen(
            [ARM64, "python", home, cpu, "-c", STEP],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for cpu in PIS
    }
    failed = []
    for cpu, process in started.items():
        said = last_line(process.communicate()[0])
        if process.returncode:
            failed.append(f"on a {PIS[cpu]} it ended with {ending(process.returncode)}: {said}")
        else:
            print(f"{PIS[cpu]} ({cpu}): {said}", flush=True)
    if failed:
        raise Failed("torch does not train on every Raspberry Pi: " + "; ".join(failed))


def federate(home: Path) -> None:
    """Run the three federations and compare them; raises Failed with what differs."""
    with federation(home, "x86", {}) as run:
        run.wait_for_the_end()
        alone = run.first_model()
    print(f"four x86 clients: {ROUNDS} rounds", flush=True)

    with federation(home, "pi-3-4", {"device-a": "cortex-a53", "device-b": "cortex-a72"}) as run:
        compare_first(run, alone)
        run.wait_for_round(KILLED_AFTER)
        run.kill("device-a")
        print(f"Raspberry Pi 3: killed after round {KILLED_AFTER} or later, and started again", flush=True)
        run.take_part("device-a", "cortex-a53")
        run.wait_for_the_end()
        killed = run.digest()
    print(f"Raspberry Pi 3 and 4, two x86 clients, one kill: model SHA-256 {killed}", flush=True)

    with federation(home, "pi-3-5", {"device-a": "cortex-a76", "device-b": "cortex-a53"}) as run:
        run.wait_for_the_end()
        undisturbed = run.digest()
    print(f"Raspberry Pi 5 and 3, two x86 clients, no kill:  model SHA-256 {undisturbed}", flush=True)
    if killed != undisturbed:
        raise Failed(f"Raspberry Pis do not have the same bits among themselves; the runs are in {home}")


def compare_first(run: Federation, alone: Mapping[str, np.ndarray]) -> None:
    """Compare the model after the first round with that of x86 alone: later ones grow apart by themselves."""
    run.wait_for_round(1)
    mixed = run.first_model()
    apart = max(float(np.abs(mixed[name] - alone[name]).max()) for name in alone)
    if not apart <= ROUNDING:
        raise Failed(
            f"after one round the model is {apart:.2g} away from that of x86 alone, more than {ROUNDING:g}"
        )
    print(f"after one round: at most {apart:.1g} away from x86 alone", flush=True)


def ending(code: int) -> str:
    """Return an exit code in words; a shell would add 128 to the signal."""
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else f"exit code {code}"


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no word"])[-1]


def main(folder: str) -> int:
    home = Path(folder).resolve()
    if code := subprocess.run([ARM64, "prepare", home], check=False).returncode:
        return code
    try:
        train_on_each(home)
        federate(home)
    except Failed as failed:
        print(f"make pi: {failed}", file=sys.stderr)
        return 1
    print("make pi: this works on Raspberry Pi 3, 4 and 5")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
