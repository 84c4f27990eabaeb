"""Console scripts as plain child processes, behind another command or with another environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from edgeflock.lab.children import program
from support.processes import Flock, Program


class Spawned:
    """A child process with the words of multiprocessing."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return


def spawn(
    flock: Flock, prefix: Sequence[str], name: str, *arguments: str, environ: Mapping[str, str] | None = None
) -> Program:
    """Start a console script behind a command that turns into it; the flock ends it."""
    log = flock.folder / f"{len(flock.programs):02d}-{name}.log"
    words = [*prefix, *program(name), *arguments]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FL_")}
    with log.open("ab") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=file, env=clean | dict(environ or {}), start_new_session=True
        )
    started = Program(f"{name} {' '.join(arguments)}", Spawned(process), log)
    flock.programs.append(started)
    return started


def spawn_server(
    flock: Flock, prefix: Sequence[str], *flags: str, environ: Mapping[str, str] | None = None
) -> Program:
    """Start the server of the run directory and wait until it listens."""
    here = () if any(flag.startswith("--listen") for flag in flags) else ("--listen=127.0.0.1:0",)
    server = spawn(flock, prefix, "fl-server", f"--run-dir={flock.run_dir}", *here, *flags, environ=environ)
    server.wait_for("listening")
    return server


def spawn_client(
    flock: Flock, prefix: Sequence[str], ids: str, *flags: str, environ: Mapping[str, str] | None = None
) -> Program:
    """Start a process that hosts these clients."""
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / 'clients' / ids}")
    return spawn(
        flock, prefix, "fl-client", f"--ids={ids}", *place, "--give-up-after=30", *flags, environ=environ
    )
