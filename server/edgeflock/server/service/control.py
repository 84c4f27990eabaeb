"""The operator's service: status, pause, resume, stop, and the events as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from edgeflock.server.core.events import PauseAsked, ReleaseAsked, ResumeAsked, StopAsked
from edgeflock.server.engine.engine import Engine
from edgeflock.server.journal.journal import read_only
from edgeflock.server.service.status import status_of
from edgeflock.v1 import control_pb2 as pb
from edgeflock.v1 import control_pb2_grpc as rpc

Context = grpc.aio.ServicerContext[Any, Any]
_PAGE = 500  # events read at a time


class ControlService(rpc.ControlServicer):
    """Answers the operator on this machine."""

    def __init__(self, engine: Engine, run_id: str, run_dir: Path) -> None:
        self._engine, self._run_id, self._run_dir = engine, run_id, run_dir
        self._news = asyncio.Condition()
        loop = asyncio.get_running_loop()
        self._wakes: set[asyncio.Task[None]] = set()

        def written() -> None:
            loop.call_soon_threadsafe(self._wake)

        engine.journal.listen(written)

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        return status_of(self._engine, self._run_id, str(self._run_dir))

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:
        self._engine.post(PauseAsked(time.monotonic()))
        return pb.PauseResponse()

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        self._engine.post(ResumeAsked(time.monotonic()))
        return pb.ResumeResponse()

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopResponse:
        reason = request.reason[:200] or "stopped by the operator"
        self._engine.post(StopAsked(reason, time.monotonic()))
        return pb.StopResponse()

    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        machine = self._engine.machine
        seat = machine.roster.seat_of.get(request.client_id)
        if seat is None or machine.quarantined(seat) is None:
            return pb.ReleaseResponse(released=False)
        self._engine.post(ReleaseAsked(seat, time.monotonic()))
        return pb.ReleaseResponse(released=True)

    async def Events(self, request: pb.EventsRequest, context: Context) -> AsyncIterator[pb.EventsResponse]:
        cursor = min(request.after, 2**63 - 1)
        while True:
            rows = await asyncio.to_thread(self._read, cursor)
            for row in rows:
                yield pb.EventsResponse(cursor=row[0], unix_time=row[1], name=row[2], fields_json=row[3])
                cursor = row[0]
            if not rows:
                async with self._news:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), 1.0)

    def _read(self, after: int) -> list[tuple[int, float, str, str]]:
        with contextlib.closing(read_only(self._engine.journal.path)) as connection:
            statement = "SELECT cursor, at, name, fields FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?"
            return list(connection.execute(statement, (after, _PAGE)))

    def _wake(self) -> None:
        task = asyncio.ensure_future(self._notify())
        self._wakes.add(task)
        task.add_done_callback(self._wakes.discard)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()
