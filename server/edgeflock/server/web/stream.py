"""The stream of server-sent events: every viewer gets what it lacks, at most once a tick."""

from __future__ import annotations

import asyncio
import contextlib
import json

from aiohttp import web

from edgeflock.server.web.guard import refuse
from edgeflock.server.web.live import TICK_S, Live
from edgeflock.server.web.picture import Seen

MOST_VIEWERS = 64
_RETRY_MS = 1000  # a browser that has lost the stream comes back after so long
_ID = "Last-Event-ID"  # what it had then


class Streams:
    """The viewers that are here now."""

    def __init__(self, live: Live) -> None:
        self._live, self._leaving = live, False
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one viewer until it goes or this process does."""
        if len(self._tasks) >= MOST_VIEWERS:
            return refuse(503, f"{MOST_VIEWERS} viewers are here already", {"Retry-After": "30"})
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._live.enter()
        try:
            with contextlib.suppress(ConnectionError):  # it has gone
                await self._feed(response, Seen.read(request.headers.get(_ID, "")))
        finally:
            self._live.leave()
            self._tasks.discard(task)
        return response

    async def _feed(self, response: web.StreamResponse, seen: Seen) -> None:
        await response.write(f"retry: {_RETRY_MS}\n\n".encode())
        while True:
            leaving = self._leaving  # asked first: what comes with the last picture is sent, too
            told, seen = self._live.picture.since(seen)
            data = json.dumps(told, allow_nan=False, separators=(",", ":"))
            await response.write(f"id: {seen}\ndata: {data}\n\n".encode())
            if leaving:
                await response.write(b"event: leaving\ndata: {}\n\n")
                return
            async with self._live.moved:
                await self._live.moved.wait()

    async def leave(self) -> bool:
        """Send the last picture to everybody and let them go; return whether there was anybody."""
        self._leaving = True
        tasks = list(self._tasks)
        await self._live.look(last=True)
        if tasks:
            await asyncio.wait(tasks, timeout=TICK_S)
        return bool(tasks)
