"""The processes beside a server, as it sees them: the dashboard, and what writes figures for TensorBoard."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import structlog

from edgeflock.common.command import extras
from edgeflock.server.config import ServerConfig
from edgeflock.server.web.child import Dashboard

log = structlog.get_logger()

_FAREWELL_S = 5.0  # for the last rounds to be written
_ENTRY = "from edgeflock.lab.cli import main; main()"  # by name: the server imports nothing of the lab


def check(config: ServerConfig) -> None:
    """Raise UsageError with what to install if event files are asked for and cannot be written."""
    if config.tensorboard:
        extras.require("--tensorboard", "tensorboard")


class ChildProcesses:
    """All of them. Whatever becomes of them, the run goes on."""

    def __init__(self, config: ServerConfig, run_dir: Path) -> None:
        self._dashboard = Dashboard.bound(config, run_dir)
        self._event_files = EventFiles(config, run_dir)

    async def start(self) -> None:
        self._dashboard.start()
        await self._event_files.start()

    async def end(self, *, over: bool) -> None:
        """Let them show and write the last rounds, and the end of a run that is over."""
        await self._dashboard.end(over=over)
        await self._event_files.end()


class EventFiles:
    """A child process, `fl-lab tensorboard`. Whatever becomes of it, the run goes on."""

    def __init__(self, config: ServerConfig, run_dir: Path) -> None:
        self._wanted, self._run_dir = config.tensorboard, run_dir
        self._process: Process | None = None

    async def start(self) -> None:
        if not self._wanted:
            return
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the folder where fl-server was started is no place to import from
                *("-c", _ENTRY, "tensorboard", str(self._run_dir), "--follow", "--attached"),
                stdin=PIPE,
                stdout=DEVNULL,
                process_group=0,  # Ctrl-C of the terminal reaches the server, which ends this in time
            )
        except OSError as error:
            log.warning("tensorboard_not_started", reason=str(error))

    async def end(self) -> None:
        """Let it write the last rounds: the end of its standard input is the word to go."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _FAREWELL_S)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._process.returncode != 0:
            log.warning(
                "tensorboard_failed", code=self._process.returncode, hint="fl-lab tensorboard RUN_DIR"
            )
