"""Console scripts as plain child processes: to their end, or started, also behind another command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgeflock.lab.becoming import program
from support.processes import Flock, Program


def clean_environ(**more: str) -> dict[str, str]:
    """Return this process's environment without options of the commands, and with one thread."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("FL_")}
    return mine | {"OMP_NUM_THREADS": "1"} | more


def run(
    name: str, *words: object, folder: Path | None = None, timeout_s: float = 100, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a console script to its end."""
    return subprocess.run(
        [*program(name), *map(str, words)],
        env=clean_environ(**environ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(name: str, *words: object, folder: Path | None = None) -> subprocess.Popen[str]:
    """Start a console script whose output and errors are read by whoever calls."""
    return subprocess.Popen(
        [*program(name), *map(str, words)],
        env=clean_environ(),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of living processes that name the folder."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if str(folder) in line]


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
    with log.open("ab") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=file, env=clean_environ(**(environ or {})), start_new_session=True
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
