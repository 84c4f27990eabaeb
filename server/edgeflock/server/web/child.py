"""The dashboard's process as fl-server sees it: started, kept alive, and ended with the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable
from pathlib import Path

import structlog

from edgeflock.common.wire.listen import bound, listen_at
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir

log = structlog.get_logger()

FAREWELL_S = 3.0  # for the last picture to reach the viewers
_LAST_SCRAPE_S = 9.0  # more, for whoever collects the metrics often to come once more after a run's end
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0  # before it is started again
_LIVED_S = 60.0  # what has lived so long is started again at once


class Dashboard:
    """A child process that shows the run. Whatever becomes of it, the run goes on."""

    def __init__(self, config: ServerConfig, run_dir: Path, listener: socket.socket | None) -> None:
        self._config, self._run_dir, self._listener = config, run_dir, listener
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    def bound(cls, config: ServerConfig, run_dir: Path) -> Dashboard:
        """Bind its socket, if one is asked for: what cannot be bound is said before anything is decided."""
        wanted = listen_at(config.dashboard, config.dashboard_insecure)
        if wanted is None:
            return cls(config, run_dir, None)
        listener, address = bound(wanted, rundir.read_small(run_dir / rundir.DASHBOARD))
        rundir.write_small(run_dir / rundir.DASHBOARD, f"{address.target}\n")
        log.info("dashboard_listening", address=address.target, url=f"http://{address.from_here.target}/")
        return cls(config, run_dir, listener)

    def start(self) -> None:
        if self._listener is not None:
            self._keeper = asyncio.create_task(self._keep(self._listener))

    async def end(self, *, over: bool) -> None:
        """Let it send its last picture, and of a run that is over say so to who collects its metrics."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._process is not None and self._process.returncode is None:
            await self._dismiss(self._process, FAREWELL_S + (_LAST_SCRAPE_S if over else 0))
        if self._listener is not None:
            self._listener.close()

    async def _dismiss(self, process: Process, seconds: float) -> None:
        """The end of its standard input is the word to go; the end of this process gives it, too."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _keep(self, listener: socket.socket) -> None:
        """Start it, and start it again when it ends, with growing pauses."""
        pause = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            code: int | str
            try:
                self._process = await self._spawn(listener.fileno())
                code = await self._process.wait()
            except OSError as error:  # no process or descriptor to be had: the run does not need one
                code = str(error)
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _LIVED_S else pause
            log.warning("dashboard_ended", code=code, again_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def _spawn(self, descriptor: int) -> Process:
        config = self._config
        options: dict[str, object] = {
            "server": os.getpid(),
            "metrics-clients": config.metrics_clients,
            "log-level": config.log_level,
            "log-format": config.log_format,
        }
        names = answered(config.dashboard_host, insecure=config.dashboard_insecure)
        words = command(self._run_dir, descriptor, names, **options)
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=PIPE,
            stdout=DEVNULL,
            pass_fds=(descriptor,),
            process_group=0,  # Ctrl-C of the terminal reaches the server, which ends this in time
        )


def answered(named: Iterable[str], *, insecure: bool) -> list[str]:
    """Return the names beside this machine's that the dashboard is to answer to; * is every one."""
    return [name.lower() for name in named] or (["*"] if insecure else [])


def command(run_dir: Path, descriptor: int, hosts: Iterable[str] = (), **options: object) -> list[str]:
    """Return what starts the process on a listening socket."""
    # -P: the folder where this was started is no place to import from.
    given = {"run-dir": run_dir, "descriptor": descriptor, **options}
    return [
        *(sys.executable, "-P", "-m", "edgeflock.server.web"),
        *(f"--{name}={value}" for name, value in given.items()),
        *(f"--host={name}" for name in hosts),
    ]
