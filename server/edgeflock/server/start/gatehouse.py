"""The gatehouse: where gates attend, and those that this server has started itself, kept alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from edgeflock.common.wire.address import Address, parse_address
from edgeflock.common.wire.key import read_key
from edgeflock.common.wire.listen import listening
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.service.gate_book import GateBook

log = structlog.get_logger()

_PORT = "port"  # a file: where a gate's clients know it
_STARTING_S = 60.0  # for one to attend that was started
_HUNG_S = 10.0  # for one to say something that says every second that it lives
_GONE_S = 3.0  # for one to end, or attend again, that attends no more
_FAREWELL_S = 5.0
_LOOK_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0  # before one is started again
_LIVED_S = 30.0  # what has lived so long is started again at once


def key_of(config: ServerConfig, run_dir: Path) -> tuple[str, Path]:
    """Return the key by which gates are known, and its file: the operator's, or one made for this run."""
    path = config.gate_key or run_dir / rundir.GATE_KEY
    if config.gate_key is None and not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{secrets.token_hex(32)}\n")
    return read_key(path, "--gate-key"), path


def _name(number: int) -> str:
    return f"gate{number}"


@dataclass
class OwnGate:
    """One gate that this server has started."""

    name: str
    port: int  # where its clients know it; 0: not yet
    process: Process | None = None
    attended: asyncio.Event = field(default_factory=asyncio.Event)  # since it was started last


class Gatehouse:
    """The gates of this machine: whatever becomes of them, the run goes on."""

    def __init__(
        self, config: ServerConfig, run_dir: Path, coordinator: Address, clients: Address, book: GateBook
    ) -> None:
        self._config, self._run_dir, self._book = config, run_dir, book
        self._coordinator, self._clients = coordinator, clients
        self._key = config.gate_key or run_dir / rundir.GATE_KEY
        self._gates = [OwnGate(_name(number), self._port(number)) for number in range(config.gates)]
        self._keepers: list[asyncio.Task[None]] = []

    def _port(self, number: int) -> int:
        """Return a gate's port of before, else one after that of the clients' service if that was said and is
        free, else any."""
        if before := rundir.read_small(self._run_dir / rundir.GATES / _name(number) / _PORT):
            return int(before)
        wanted = self._clients.with_port(parse_address(self._config.listen, "--listen", any_port=True).port)
        if not wanted.port or wanted.port + number + 1 > 65535:
            return 0
        try:
            listening(there := wanted.with_port(wanted.port + number + 1))[0].close()
        except OSError:
            return 0
        return there.port

    async def open(self) -> None:
        """Start them, and wait until they attend or it takes too long."""
        self._keepers = [asyncio.create_task(self._keep(gate)) for gate in self._gates]
        waiting = [asyncio.create_task(gate.attended.wait()) for gate in self._gates]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=_STARTING_S)
            for one in late:
                one.cancel()
            if late:
                log.warning("gates_late", missing=len(late), seconds=_STARTING_S)

    async def _keep(self, gate: OwnGate) -> None:
        """Start one, and start it again when it has ended or hangs."""
        pause = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                gate.process = await self._spawn(gate)
                log.info("gate_started", gate=gate.name, pid=gate.process.pid)
                code: int | str = await self._watch(gate, gate.process)
            except OSError as error:
                code = str(error)
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _LIVED_S else pause
            log.warning("gate_ended", gate=gate.name, code=code, again_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def _watch(self, gate: OwnGate, process: Process) -> int:
        """Wait until a gate ends; one that attends no more, or never has, is ended."""
        ended, gone_since = asyncio.create_task(process.wait()), time.monotonic()
        patience = _STARTING_S
        while not ended.done():
            await asyncio.wait([ended], timeout=_LOOK_S)
            if (address := self._book.address(gate.name)) is not None:
                self._attends(gate, parse_address(address, "gate").port)
                gone_since, patience = time.monotonic(), _GONE_S
                hangs = self._book.silent_s(gate.name) > _HUNG_S
            else:
                hangs = time.monotonic() - gone_since > patience
            if hangs and not ended.done():
                log.warning("gate_hangs", gate=gate.name)
                process.kill()
                await ended
        return ended.result()

    def _attends(self, gate: OwnGate, port: int) -> None:
        """Note where its clients know it, for its next life and this server's."""
        gate.attended.set()
        if port != gate.port:
            gate.port = port
            with contextlib.suppress(OSError):
                (self._run_dir / rundir.GATES / gate.name / _PORT).write_text(f"{port}\n", "utf-8")

    async def _spawn(self, gate: OwnGate) -> Process:
        folder = self._run_dir / rundir.GATES / gate.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        gate.attended.clear()
        with (folder / "log").open("ab") as told:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "edgeflock.server.gate.cli", "--attached"),
                *self._options(gate, folder),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=told,
                process_group=0,  # Ctrl-C of the terminal reaches the server, which ends this in time
            )

    def _options(self, gate: OwnGate, folder: Path) -> list[str]:
        config = self._config
        given: dict[str, object] = {
            "coordinator": self._coordinator.target,
            "key": self._key,
            "listen": self._clients.with_port(gate.port).target,
            "name": gate.name,
            "spool-dir": folder,
            "credit-mib": config.credit_mib,
            "tls-cert": config.tls_cert,
            "tls-key": config.tls_key,
            "tls-client-ca": config.tls_client_ca,
            "log-level": config.log_level,
            "log-format": "json",
        }
        flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return [*flags, *(["--insecure"] if config.insecure else [])]

    async def close(self) -> None:
        """The end of their standard input is the word to go."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        living = [one.process for one in self._gates if one.process and one.process.returncode is None]
        for process in living:
            assert process.stdin is not None
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.wait() for one in living)), _FAREWELL_S)
        for process in living:
            if process.returncode is None:
                process.kill()
                await process.wait()
