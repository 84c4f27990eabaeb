"""The addresses of the dashboard and what lies behind each."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from aiohttp import web

from edgeflock.common.errors import BadValue, EdgeflockError
from edgeflock.server.web.guard import add_headers, guard, refuse
from edgeflock.server.web.live import Live
from edgeflock.server.web.metrics import CONTENT_TYPE, Metrics
from edgeflock.server.web.selection import Wanted, selected
from edgeflock.server.web.stream import Streams
from edgeflock.server.web.timeline import read_events, read_round

_LARGEST = 2**53  # what a browser counts with
_EVENTS = 200  # events of one page
_SOON_S, _LATE_S = 6.0, 3.0  # between two scrapes, and beyond; a server waits so long at the end of its run
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


@dataclass(frozen=True)
class _File:
    body: bytes
    kind: str
    tag: str


class Scrapes:
    """When whoever collects the metrics comes: it learns of the end of a run only by coming once more."""

    def __init__(self) -> None:
        self._interval = self._last = 0.0
        self._moved = asyncio.Event()

    def noted(self, now: float) -> None:
        self._interval, self._last = (now - self._last if self._last else 0.0), now
        self._moved.set()

    async def once_more(self, now: float) -> None:
        """Wait for the next one, if they come so often that it is due soon."""
        due = self._last + self._interval + _LATE_S - now
        if self._interval <= _SOON_S and due > 0:
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), due)


class Pages:
    """All handlers; none of them changes anything."""

    def __init__(self, live: Live, run_dir: Path, metrics: Metrics) -> None:
        self._live, self._run_dir, self._metrics = live, run_dir, metrics
        self.streams, self.scrapes = Streams(live), Scrapes()
        self._files = _packaged()

    def application(self, hosts: Collection[str] | None = ()) -> web.Application:
        application = web.Application(middlewares=[guard(hosts)], client_max_size=1024)
        application.on_response_prepare.append(add_headers)
        application.router.add_get("/", self.index)
        application.router.add_get("/static/{name}", self.static)
        application.router.add_get("/api/stream", self.streams.serve, allow_head=True)
        application.router.add_get("/api/rounds/{round}", self.round)
        application.router.add_get("/api/events", self.events)
        application.router.add_get("/api/clients", self.clients)
        application.router.add_get("/metrics", self.metrics)
        application.router.add_get("/healthz", self.healthz)
        application.router.add_get("/readyz", self.readyz)
        return application

    async def index(self, request: web.Request) -> web.StreamResponse:
        return self._send(request, "index.html")

    async def static(self, request: web.Request) -> web.StreamResponse:
        return self._send(request, request.match_info["name"])

    def _send(self, request: web.Request, name: str) -> web.StreamResponse:
        """Answer with a file of the package: only names that were there at the start are known."""
        file = self._files.get(name)
        if file is None:
            return refuse(404, "there is no such page")
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        charset = "utf-8" if file.kind.startswith("text/") else None
        return web.Response(body=file.body, content_type=file.kind, charset=charset, headers=headers)

    async def round(self, request: web.Request) -> web.StreamResponse:
        number = _number(request.match_info["round"])
        if number is None:
            return refuse(400, "a round is a whole number")
        try:
            find = request.query.get("find", "")
            found = await asyncio.to_thread(read_round, self._run_dir, number, find)
        except EdgeflockError:
            return refuse(503, "the journal cannot be read")
        return _json(found) if found is not None else refuse(404, "there is no such round yet")

    async def events(self, request: web.Request) -> web.StreamResponse:
        before = _number(request.query.get("before", str(_LARGEST)))
        if before is None:
            return refuse(400, "before is a cursor, a whole number")
        try:
            rounds = request.query.get("rounds") == "1"
            found = await asyncio.to_thread(read_events, self._run_dir, before, _EVENTS, rounds=rounds)
        except EdgeflockError:
            return refuse(503, "the journal cannot be read")
        return _json(found)

    async def clients(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        skip = _number(query.get("skip", "0"))
        if skip is None:
            return refuse(400, "skip is a whole number")
        words = {name: query[name] for name in ("show", "find", "by") if name in query}
        try:
            wanted = Wanted(**words, down=query.get("down") == "1", skip=skip)
        except BadValue as error:
            return refuse(400, str(error))
        return _json(selected(self._live.picture.members.all(), wanted))

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        await self._live.look()
        body = self._metrics.text()
        self.scrapes.noted(time.monotonic())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    async def healthz(self, request: web.Request) -> web.StreamResponse:
        """This process answers."""
        return web.Response(text="ok\n", headers={"Cache-Control": "no-store"})

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        """The server answers and takes part in a run that is not over."""
        await self._live.look()
        state = self._live.picture.state()
        ready = state in ("gathering", "running", "paused")
        return web.Response(
            status=200 if ready else 503, text=f"{state}\n", headers={"Cache-Control": "no-store"}
        )


def _number(text: str) -> int | None:
    known = text.isascii() and text.isdigit() and len(text) <= 16
    return int(text) if known and int(text) <= _LARGEST else None


def _json(value: object) -> web.Response:
    return web.json_response(value, headers={"Cache-Control": "no-store"})


def _packaged() -> dict[str, _File]:
    """Read the page and all that it loads."""
    found = {}
    for entry in resources.files("edgeflock.server.web").joinpath("static").iterdir():
        body = entry.read_bytes()
        kind = _KINDS[Path(entry.name).suffix]
        found[entry.name] = _File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found
