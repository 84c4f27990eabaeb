"""Records tests/data/runs: a small run, parked in the midst by the code of an earlier commit.

    PYTHONPATH=tests python -m support.parked_run SOURCES OUT.tar.xz [--with-clients] [--ended] [FLAG ...]

SOURCES is a checkout of that commit, which needs no installation. FLAG is fl-server's. The run is made twice:
once undisturbed, for the SHA-256 of its model, and once stopped in its second round, when one of two updates
is there. With --ended it is the undisturbed one that is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

RUN = ("--clients=2", "--rounds=3", "--seed=5", "--model=linear", "--listen=127.0.0.1:0")
CLIENTS = ("c0", "c1")
WINGS = ("common", "server", "client", "lab")
LIMIT_S = 60.0
LATER_S = 1.0  # for the other client's update, and for all to be written


class Ends:
    """The processes of one run."""

    def __init__(self, sources: Path, folder: Path, flags: list[str]) -> None:
        packages = next(path for path in sys.path if path.endswith("site-packages"))
        roots = [*(str(sources / wing) for wing in WINGS), packages]
        self._environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(roots)}
        self.folder, self.run_dir = folder, folder / "run"
        self.server = self._start("server", "server", f"--run-dir={self.run_dir}", *RUN, *flags)
        self.wait_for("listening")
        address = f"--server={(self.run_dir / 'address').read_text().strip()}"
        self.clients = [
            self._start("client", id, f"--ids={id}", f"--state-dir={folder / id}", address) for id in CLIENTS
        ]

    def _start(self, end: str, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command; without site, which would find the code of this checkout."""
        main = f"from edgeflock.{end}.cli import main; main()"
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-S", "-c", main, *words]
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._environ)

    def wait_for(self, event: str) -> None:
        log, end = self.folder / "server.log", time.monotonic() + LIMIT_S
        while f'"event": "{event}"' not in log.read_text():
            if self.server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"no {event}: {log.read_text()[-2000:]}")
            time.sleep(0.001)

    def finish(self) -> str:
        """Wait for the end; return the SHA-256 of the model."""
        codes = [process.wait(LIMIT_S) for process in (self.server, *self.clients)]
        assert codes == [0, 0, 0], codes
        return hashlib.sha256((self.run_dir / "model.safetensors").read_bytes()).hexdigest()

    def park(self) -> None:
        """Leave in the second round, with the update of the first client alone."""
        self.wait_for("round_committed")
        self.clients[1].send_signal(signal.SIGSTOP)
        time.sleep(LATER_S)
        self.server.terminate()
        assert self.server.wait(LIMIT_S) == 0
        for client in self.clients:
            client.kill()
            client.wait()


def record(sources: Path, out: Path, flags: list[str], *, clients: bool, ended: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("whole", "parked")]
        for folder in folders:
            folder.mkdir()
        whole = kept = Ends(sources, folders[0], flags)
        sha256 = whole.finish()
        if not ended:
            kept = Ends(sources, folders[1], flags)
            kept.park()
        commit = ["git", "-C", str(sources), "rev-parse", "--short", "HEAD"]
        known = {
            "commit": subprocess.check_output(commit, text=True).strip(),
            "flags": flags,
            "sha256": sha256,
        }
        (kept.folder / "recorded.json").write_text(json.dumps(known, indent=1) + "\n")
        with tarfile.open(out, "w:xz") as archive:
            for name in ("recorded.json", "run", *(CLIENTS if clients else ())):
                archive.add(kept.folder / name, name)


if __name__ == "__main__":
    words = sys.argv[1:]
    choices = {name: f"--{name}" in words for name in ("with-clients", "ended")}
    place, target, *rest = [word for word in words if word.removeprefix("--") not in choices]
    record(
        Path(place).absolute(), Path(target), rest, clients=choices["with-clients"], ended=choices["ended"]
    )
