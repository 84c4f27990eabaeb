"""What the run is now: journal and status, looked at as often as somebody wants to know."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import grpc
import psutil
import structlog

from edgeflock.common.errors import BadData
from edgeflock.common.wire.transport import MAX_STATUS, channel_options
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.web import about
from edgeflock.server.web.picture import Picture
from edgeflock.server.web.tail import Tail
from edgeflock.v1 import control_pb2 as pb
from edgeflock.v1 import control_pb2_grpc

log = structlog.get_logger()

TICK_S = 1.0  # between two looks while somebody watches
_UNWATCHED_S = 10.0  # else; so that a long run is not read in one go when somebody comes
_ANSWER_S = 5.0
_CLIENTS_A_SECOND = 1000  # that the server describes, in about 10 ms: many are asked about less often,
_LONGEST_S = 30.0  # but as often as this


class Live:
    """Keeps the picture up to date."""

    def __init__(self, run_dir: Path, picture: Picture, server_pid: int | None = None) -> None:
        self.picture = picture
        self.moved = asyncio.Condition()  # the picture is a new one
        self.watchers = 0
        self._run_dir, self._tail = run_dir, Tail(run_dir)
        self._server = _Server(server_pid)
        self._looking = asyncio.Lock()
        self._looked = self._asked = self._shown = -1e9
        self._wait_s = TICK_S  # between two questions to the server
        self._channel: tuple[str, grpc.aio.Channel] | None = None
        self._wanted = asyncio.Event()  # somebody has come
        self._trouble = ""
        self._stamp: tuple[int, int] | None = None  # of run.toml as it was read
        self._stopped = False

    async def run(self) -> None:
        """Look again and again until `stop`; do not cancel this: a thread may be reading."""
        while not self._stopped:
            await self.look()
            if self._stopped:
                return
            self._wanted.clear()
            try:
                pause = TICK_S if self.watchers else _UNWATCHED_S
                await asyncio.wait_for(self._wanted.wait(), pause)
            except TimeoutError:
                pass

    def stop(self) -> None:
        self._stopped = True
        self._wanted.set()

    def enter(self) -> None:
        """Somebody watches from now on."""
        self.watchers += 1
        self._wanted.set()

    def leave(self) -> None:
        self.watchers -= 1

    async def look(self, *, last: bool = False) -> None:
        """Bring the picture up to date, unless that was done just now."""
        async with self._looking:
            if time.monotonic() - self._looked < TICK_S / 2 and not last:
                return
            await self._read()
            if last or time.monotonic() - self._asked >= self._wait_s - TICK_S / 2:
                self.picture.observe(await self._ask(), self._server.measure())
            self._looked = time.monotonic()
            await self._show()

    async def _show(self) -> None:
        """Let the viewers have the picture as it is now."""
        self._shown = time.monotonic()
        async with self.moved:
            self.moved.notify_all()

    async def _read(self) -> None:
        """Take what is new in the journal, page by page; trouble is logged once and met again."""
        self._read_about()
        try:
            while (news := await asyncio.to_thread(self._tail.look)) is not None:
                self.picture.take(news)
                self._trouble = ""
                if not news.more:
                    return
                if time.monotonic() - self._shown >= TICK_S:  # of a long run something is soon to be seen
                    await self._show()
        except BadData as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("dashboard_cannot_read_journal", reason=self._trouble)

    def _read_about(self) -> None:
        """Read run.toml when there is another one: a run may be shown before it has begun, and go on."""
        stamp = _stamp(self._run_dir / rundir.RUN_TOML)
        if stamp != self._stamp:
            self._stamp, self.picture.about = stamp, about.read(self._run_dir)

    async def _ask(self) -> pb.StatusResponse | None:
        """Return the server's status, or None if it does not answer."""
        self._asked = time.monotonic()
        self.picture.address = rundir.read_small(self._run_dir / rundir.ADDRESS)
        address = rundir.read_small(self._run_dir / rundir.CONTROL)
        if not address:
            return None  # not yet, or no more
        if self._channel is None or self._channel[0] != address:
            await self._hang_up()
            self._channel = (
                address,
                grpc.aio.insecure_channel(address, options=channel_options(largest=MAX_STATUS)),
            )
        stub = control_pb2_grpc.ControlStub(self._channel[1])
        try:
            status: pb.StatusResponse = await stub.Status(pb.StatusRequest(), timeout=_ANSWER_S)
        except grpc.aio.AioRpcError:
            return None
        self._wait_s = min(_LONGEST_S, max(TICK_S, len(status.members) / _CLIENTS_A_SECOND))
        return status

    async def _hang_up(self) -> None:
        if self._channel is not None:
            await self._channel[1].close()
            self._channel = None

    async def close(self) -> None:
        await self._hang_up()
        await asyncio.to_thread(self._tail.close)


class _Server:
    """What the server's process takes of the machine."""

    def __init__(self, pid: int | None) -> None:
        self._process: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(pid) if pid is not None else None

    def measure(self) -> dict[str, float]:
        if self._process is None:
            return {}
        try:
            with self._process.oneshot():
                times = self._process.cpu_times()
                return {
                    "cpu_percent": self._process.cpu_percent(),
                    "cpu_s": round(times.user + times.system, 2),
                    "rss": self._process.memory_info().rss,
                }
        except psutil.Error:
            return {}


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
