"""The processes beside a server, as it sees them: the dashboard, and what gives figures to other programs."""

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
_MODEL_S = 60.0  # of a run that is over: for its model, too, which may go over a network
_ENTRY = "from edgeflock.lab.cli import main; main()"  # by name: the server imports nothing of the lab


def trackers(config: ServerConfig) -> list[str]:
    """Return who is to be given the figures of the run."""
    return sorted({*config.track, *(["tensorboard"] if config.tensorboard else [])})


def check(config: ServerConfig) -> None:
    """Raise UsageError with what to install if figures are asked for and cannot be written."""
    for name in trackers(config):
        said = "--tensorboard" if config.tensorboard and name == "tensorboard" else f"--track {name}"
        extras.require(said, name)


class ChildProcesses:
    """All of them. Whatever becomes of them, the run goes on."""

    def __init__(self, config: ServerConfig, run_dir: Path) -> None:
        self._dashboard = Dashboard.bound(config, run_dir)
        self._writers = [FigureWriter(name, run_dir) for name in trackers(config)]

    async def start(self) -> None:
        self._dashboard.start()
        for writer in self._writers:
            await writer.start()

    async def end(self, *, over: bool) -> None:
        """Let them show and write the last rounds, and the end of a run that is over."""
        await self._dashboard.end(over=over)
        await asyncio.gather(*(writer.end(over=over) for writer in self._writers))


class FigureWriter:
    """A child process, `fl-lab track`, for one of those who are given figures. Whatever becomes of it, the
    run goes on."""

    def __init__(self, tracker: str, run_dir: Path) -> None:
        self._tracker, self._run_dir = tracker, run_dir
        self._process: Process | None = None

    async def start(self) -> None:
        words = ("track", self._tracker, str(self._run_dir), "--follow", "--attached")
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # the folder where fl-server was started is no place to import from
                *("-c", _ENTRY, *words),
                stdin=PIPE,
                stdout=DEVNULL,
                process_group=0,  # Ctrl-C of the terminal reaches the server, which ends this in time
            )
        except OSError as error:
            log.warning("tracking_not_started", tracker=self._tracker, reason=str(error))

    async def end(self, *, over: bool) -> None:
        """Let it write the last rounds: the end of its standard input is the word to go."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _MODEL_S if over else _FAREWELL_S)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._process.returncode != 0:
            log.warning(
                "tracking_failed",
                tracker=self._tracker,
                code=self._process.returncode,
                hint=f"fl-lab track {self._tracker} RUN_DIR",
            )
