"""Real fl-server and fl-client processes: started fast, watched by their logs, always ended by pid."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from edgeflock.lab.becoming import die_with_parent
from support import lastwords
from support.rows import rows

# A process is forked from one that has imported torch and grpc already: its start takes 0.05 s, not 1.3 s.
# grpc reads the variable when it is imported; a command sets it before that.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
_SPARE = get_context("forkserver")
_SPARE.set_forkserver_preload(
    ["edgeflock.server.daemon", "edgeflock.server.start.resolve", "edgeflock.client.daemon"]
)
_POLL_S = 0.01
LIMIT_S = 100.0  # for whatever is waited for: a hang, and no measure of anything

T = TypeVar("T")


def until(look: Callable[[], T | None], what: Callable[[], str], limit_s: float = LIMIT_S) -> T:
    """Look until there is something to see; what it is goes into the failure."""
    end = time.monotonic() + limit_s
    while (seen := look()) is None:
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s:g} s: {what()}")
        time.sleep(_POLL_S)
    return seen


class Running(Protocol):
    """A process, forked here or started otherwise."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exitcode(self) -> int | None: ...
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


@dataclass
class Program:
    """One process, with a log of its own."""

    name: str
    process: Running
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8") if self.log.exists() else ""

    def events(self, name: str, **fields: object) -> list[dict[str, Any]]:
        """Return the log's whole lines of that event with these fields."""
        lines = [line for line in self.text.split("\n")[:-1] if f'"event": "{name}"' in line]
        entries: list[dict[str, Any]] = list(map(json.loads, lines))
        return [entry for entry in entries if fields.items() <= entry.items()]

    def wait_for(
        self, name: str, count: int = 1, limit_s: float = LIMIT_S, **fields: object
    ) -> dict[str, Any]:
        """Wait until the event has been logged so often; return the last one."""

        def look() -> dict[str, Any] | None:
            ended = not self.process.is_alive()  # asked first: what is logged after it is not missed
            found = self.events(name, **fields)
            if len(found) < count and ended:
                raise AssertionError(f"{self.name} ended without {name} {fields or ''}: {self.text[-3000:]}")
            return found[-1] if len(found) >= count else None

        return until(look, lambda: f"{name} {fields or ''} of {self.name}: {self.text[-3000:]}", limit_s)

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """kill -9, a stopped process too, and wait until it is gone."""
        if self.process.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself since
                self.signal(signal.SIGKILL)
        self.process.join()

    def ended(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end and return the exit code; a traceback is a failure."""
        self.process.join(limit_s)
        assert self.process.exitcode is not None, f"{self.name} still runs: {self.text[-3000:]}"
        assert "Traceback" not in self.text, self.text[-5000:]
        assert not self.silence(), self.silence()
        return self.process.exitcode

    def silence(self) -> str:
        """Return how it went without a word, or nothing (promise R19)."""
        command = self.name.partition(" ")[0]
        code = self.process.exitcode
        daemon = command in ("fl-server", "fl-client")
        return lastwords.silent(command, self.text, code) if daemon and code is not None else ""

    def sentence(self) -> str:
        """Return the last line of what it said."""
        return self.text.rstrip("\n").rpartition("\n")[2]


@dataclass
class Flock:
    """The processes of one test; one run directory unless another is named."""

    folder: Path
    programs: list[Program] = field(default_factory=list)
    seen: Path | None = None  # the run directory, if it is reached by another path from here

    @property
    def run_dir(self) -> Path:
        return self.seen or self.folder / "run"

    @property
    def address(self) -> str:
        return (self.run_dir / "address").read_text("utf-8").strip()

    def start(
        self, name: str, *arguments: str, environ: Mapping[str, str] | None = None, gate: Path | None = None
    ) -> Program:
        """Start a console script; with a gate, it begins when that file is there."""
        log = self.folder / f"{len(self.programs):02d}-{name}.log"
        given = (name, arguments, str(log), dict(environ or {}), gate)
        process = _SPARE.Process(target=_become, args=given, daemon=True)
        process.start()
        program = Program(f"{name} {' '.join(arguments)}", process, log)
        self.programs.append(program)
        return program

    def server(self, *flags: str) -> Program:
        """Start the server of the run directory and wait until it listens."""
        server = self.begin_server(*flags)
        server.wait_for("listening")
        return server

    def begin_server(self, *flags: str, gate: Path | None = None) -> Program:
        here = () if any(flag.startswith("--listen") for flag in flags) else ("--listen=127.0.0.1:0",)
        return self.start("fl-server", f"--run-dir={self.run_dir}", *here, *flags, gate=gate)

    def client(self, ids: str, *flags: str, gate: Path | None = None) -> Program:
        """Start a process that hosts these clients; the same ids have the same state directory again."""
        place = (f"--server={self.address}", f"--state-dir={self.folder / 'clients' / ids}")
        return self.start("fl-client", f"--ids={ids}", *place, "--give-up-after=30", *flags, gate=gate)

    def clients(self, *hosts: str) -> list[Program]:
        return [self.client(ids) for ids in hosts]

    def close(self) -> None:
        for program in self.programs:
            program.kill()

    # -------------------------------------------------------------------------- what a run left

    def sha256(self) -> str:
        """Return the hash of the final model."""
        return hashlib.sha256((self.run_dir / "model.safetensors").read_bytes()).hexdigest()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Read from the journal."""
        return rows(self.run_dir / "journal.sqlite", query)

    def verdicts(self, client_id: str) -> dict[int, str]:
        """Return the outcomes of one client by round."""
        query = "SELECT round, verdict FROM outcomes JOIN seats USING (seat) WHERE client_id = '{}'"
        return dict(self.rows(query.format(client_id)))

    def decided(self) -> set[tuple[Any, ...]]:
        """Return what the journal has settled for good: committed rounds and verdicts."""
        rounds = "SELECT epoch, round, model_digest, state_digest FROM rounds WHERE committed = 1"
        verdicts = "SELECT epoch, round, seat, digest, verdict FROM outcomes"
        try:
            return {*self.rows(rounds), *self.rows(verdicts)}
        except sqlite3.OperationalError:  # killed before there was a journal
            return set()

    def sent_again(self) -> int:
        """Return how many bytes of updates came more than once."""
        return int(self.rows("SELECT coalesce(sum(resent_bytes), 0) FROM costs")[0][0])

    def announced(self, name: str) -> list[dict[str, Any]]:
        """Return what the journal's feed says of an event."""
        rows = self.rows(f"SELECT fields FROM events WHERE name = '{name}' ORDER BY cursor")
        return [json.loads(fields) for (fields,) in rows]


def _become(
    name: str, arguments: tuple[str, ...], log: str, environ: dict[str, str], gate: Path | None
) -> None:
    """Turn this process into the console script: its own group, its own log, its own environment."""
    os.setpgid(0, 0)
    die_with_parent()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for variable in [variable for variable in os.environ if variable.startswith("FL_")]:
        del os.environ[variable]
    os.environ.update(environ)
    if "PWD" in environ:
        os.chdir(environ["PWD"])
    while gate is not None and not gate.exists():
        time.sleep(_POLL_S)
    sys.argv = [name, *arguments]
    room = {"fl-gate": "server.gate"}.get(name, name.removeprefix("fl-"))
    importlib.import_module(f"edgeflock.{room}.cli").main()


@contextlib.contextmanager
def flock(folder: Path) -> Iterator[Flock]:
    """Give a flock in that folder; none of its processes outlives the block."""
    made = Flock(folder)
    try:
        yield made
    finally:
        silences = list(filter(None, (program.silence() for program in made.programs)))
        made.close()
    assert not silences, silences


def run_to_the_end(folder: Path, flags: tuple[str, ...], hosts: tuple[str, ...], *client_flags: str) -> str:
    """Run undisturbed with one client process per group of ids; return the hash of the final model."""
    with flock(folder) as made:
        server = made.server(*flags)
        clients = [made.client(ids, *client_flags) for ids in hosts]
        assert [server.ended(), *(client.ended() for client in clients)] == [0] * (1 + len(hosts))
        return made.sha256()


_MOUNT = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'


def mounted(folder: Path, options: str, *command: str) -> list[str]:
    """Return the command with the folder as a disk of its own; from here it is below /proc/PID/root."""
    return ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", options, str(folder), *command]
