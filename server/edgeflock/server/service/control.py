"""The operator's service: status, pause, resume, stop, and the events as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from edgeflock.common.client_id import WORDS, is_client_id
from edgeflock.server.core.events import AddAsked, DropAsked, ReplaceAsked
from edgeflock.server.core.wishes import Change
from edgeflock.server.engine.intake import Intake
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.reader import Event, Reader
from edgeflock.server.service.sessions import Sessions
from edgeflock.server.service.status import status_of
from edgeflock.v1 import control_pb2 as pb
from edgeflock.v1 import control_pb2_grpc as rpc

Context = grpc.aio.ServicerContext[Any, Any]
_PAGE = 500  # events read at a time


class ControlService(rpc.ControlServicer):
    """Answers the operator on this machine."""

    def __init__(
        self, intake: Intake, sessions: Sessions, journal: Journal, run_id: str, run_dir: Path
    ) -> None:
        self._intake, self._sessions, self._journal = intake, sessions, journal
        self._run_id, self._run_dir = run_id, run_dir
        self._news = asyncio.Condition()
        self._written = 0  # transactions
        loop = asyncio.get_running_loop()
        self._wakes: set[asyncio.Task[None]] = set()

        def written() -> None:
            with contextlib.suppress(RuntimeError):  # a server that broke closes its journal after its loop
                loop.call_soon_threadsafe(self._wake)

        journal.listen(written)

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        return status_of(self._intake, self._sessions, self._run_id, str(self._run_dir))

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:
        await _written(context, await self._intake.pause())
        return pb.PauseResponse()

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        await _written(context, await self._intake.resume())
        return pb.ResumeResponse()

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopResponse:
        await _written(context, await self._intake.stop(request.reason[:200] or "stopped by the operator"))
        return pb.StopResponse()

    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        return pb.ReleaseResponse(released=await self._intake.release(request.client_id))

    async def ChangeRoster(
        self, request: pb.ChangeRosterRequest, context: Context
    ) -> pb.ChangeRosterResponse:
        asked = _change(request)
        if isinstance(asked, str):
            return pb.ChangeRosterResponse(fault=asked)
        found = await self._intake.change(asked)
        if isinstance(found, str):
            return pb.ChangeRosterResponse(fault=found)
        await _written(context, found)
        return pb.ChangeRosterResponse()

    async def Events(self, request: pb.EventsRequest, context: Context) -> AsyncIterator[pb.EventsResponse]:
        cursor = min(request.after, 2**63 - 1)
        while True:
            before = self._written
            events = await asyncio.to_thread(self._read, cursor)
            for event in events:
                text = json.dumps(event.fields, sort_keys=True)
                yield pb.EventsResponse(
                    cursor=event.cursor, unix_time=event.at, name=event.name, fields_json=text
                )
                cursor = event.cursor
            if not events:
                await self._news_since(before)

    def _read(self, after: int) -> list[Event]:
        with contextlib.closing(Reader(self._run_dir)) as reader:
            return reader.events(after, _PAGE)

    async def _news_since(self, before: int) -> None:
        """Wait until more is written than that."""
        async with self._news:
            await self._news.wait_for(lambda: self._written > before)

    def _wake(self) -> None:
        self._written += 1
        task = asyncio.ensure_future(self._notify())
        self._wakes.add(task)
        task.add_done_callback(self._wakes.discard)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


def _change(request: pb.ChangeRosterRequest) -> Change | str:
    """Return what is asked for, or why it cannot be meant."""
    now = time.monotonic()
    match request.WhichOneof("change"):
        case "add":
            return _fault(request.add) or AddAsked(request.add, now)
        case "drop":
            return DropAsked(request.drop, now)
        case "replace":
            asked = request.replace
            return _fault(asked.by) or ReplaceAsked(asked.client_id, asked.by, now)
        case _:
            return "nothing is asked for"


def _fault(client_id: str) -> str:
    return "" if is_client_id(client_id) else f"{client_id[:80]!r} is no client id: allowed is {WORDS}"


async def _written(context: Context, written: bool) -> None:
    """Let nobody rely on a word that the next start would not know of."""
    if not written:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server goes away and has not written that down")
