"""A server that is killed in mid-round: seconds from its next start to the next committed round.

Four clients that wait for it train the mlp on digits, 20 epochs a round; the baseline is the import of torch.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.children import Children, Failed, environment, program
from benchmarks.result import Benchmark, Row, against

LIMIT = 3.0  # of the import of torch, which is most of a start
_KILLS, _CLIENTS, _ROUNDS_BETWEEN = 5, 4, 3
_LIMIT_S = 60.0


def measure(repeats: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, Children() as clients:
        server = _Server(Path(folder))
        try:
            for number in range(_CLIENTS):
                arguments = [*program("fl-client"), f"--server={server.address}", f"--id=c{number}"]
                state = f"--state-dir={folder}/state-{number}"
                clients.start(f"c{number}", [*arguments, state], Path(folder, f"{number}.log"), environment())
            pairs = [(_import_torch_s(), server.killed_s()) for _ in range(_KILLS * repeats)]
        finally:
            server.end()
            clients.wait(clients.all, _LIMIT_S)
    yield against("kill -9 to the next round", "s", pairs, LIMIT, "python -c 'import torch'")


class _Server:
    """An fl-server that is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._run = folder / "run"
        given = ("--rounds=100000", f"--clients={_CLIENTS}", "--epochs=20", "--listen=127.0.0.1:0")
        self._process = self._start(*given)
        self._wait(lambda: (self._run / "address").exists())
        self.address = (self._run / "address").read_text("utf-8").strip()

    def killed_s(self) -> float:
        """Let some rounds pass, kill it, and return what it took until the next one was committed."""
        wanted = self._committed() + _ROUNDS_BETWEEN
        self._wait(lambda: self._committed() >= wanted)
        self._process.kill()
        self._process.wait()
        before, begun = self._committed(), time.monotonic()
        self._process = self._start()
        self._wait(lambda: self._committed() > before)
        return time.monotonic() - begun

    def end(self) -> None:
        """Stop the run, so that its clients go, too."""
        stop = [*program("fl-lab"), "control", str(self._run), "stop", "--reason", "measured"]
        subprocess.run(stop, env=environment(), check=True, capture_output=True, timeout=_LIMIT_S)
        self._process.wait(_LIMIT_S)

    def _start(self, *given: str) -> subprocess.Popen[bytes]:
        command = [*program("fl-server"), f"--run-dir={self._run}", "--log-level=error", *given]
        return subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)

    def _committed(self) -> int:
        with contextlib.suppress(sqlite3.Error):
            journal = f"file:{self._run}/journal.sqlite?mode=ro"
            with contextlib.closing(sqlite3.connect(journal, uri=True)) as connection:
                found = connection.execute("SELECT max(round) FROM rounds WHERE committed = 1").fetchone()
                return found[0] or 0
        return 0

    def _wait(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + _LIMIT_S
        while not ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise Failed("the server did not come to its next round")
            time.sleep(0.005)


def _import_torch_s() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], env=os.environ, check=True, timeout=_LIMIT_S)
    return time.monotonic() - begun


BENCHMARKS = {"resume": Benchmark("a killed server's next round", measure)}
