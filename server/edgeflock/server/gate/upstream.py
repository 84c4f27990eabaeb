"""The gate's stream to its coordinator: a ticket for each call of a client, and what is answered to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import structlog

from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.server.gate.way import Way
from edgeflock.server.gates.pacing import Pacing
from edgeflock.server.service.refusals import from_wire
from edgeflock.v1 import gate_pb2 as gpb
from edgeflock.v1 import gate_pb2_grpc as rpc

log = structlog.get_logger()

_BEAT_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 3.0  # before the coordinator is dialled again
_MOST_ASKED = 512  # in one message


class Unattended(EdgeflockError):
    """The coordinator is not reached."""


class Ticket:
    """One call of a client, as long as the client waits for it and there is the stream on which it began."""

    def __init__(self, number: int, ask: Callable[[gpb.Asked, bool], None]) -> None:
        self.number, self._ask = number, ask
        self._told: asyncio.Queue[tuple[gpb.Told, bytes] | None] = asyncio.Queue()
        self.part = b""  # of the view that `next` has returned
        self.ended = False  # the coordinator waits for nothing more of it
        self.let_go: Callable[[], object] | None = None  # called when nobody waits for its bytes any more

    def ask(self, asked: gpb.Asked, *, now: bool = True) -> None:
        """Say something of this call; if not `now`, with what is said next."""
        asked.ticket = self.number
        self._ask(asked, now)

    def tell(self, told: gpb.Told, part: bytes = b"") -> None:
        """Take an answer, with the part that it has in common with others."""
        self.ended = self.ended or told.HasField("end")
        if told.HasField("end") and self.let_go is not None:
            self.let_go()
        else:
            self._told.put_nowait((told, part))

    def lose(self) -> None:
        """The stream is lost: there will be no more answers."""
        self._told.put_nowait(None)

    async def next(self) -> gpb.Told:
        """Return the next answer; raises Unattended."""
        if (found := await self._told.get()) is None:
            self._told.put_nowait(None)
            raise Unattended("the coordinator is away")
        told, self.part = found
        return told


class Words:
    """What is to be said on one stream, and on no other: a former one may still be asking for words."""

    def __init__(self) -> None:
        self._asked: list[gpb.Asked] = []
        self._news = asyncio.Event()

    def add(self, asked: gpb.Asked, now: bool) -> None:
        self._asked.append(asked)
        if now:
            self._news.set()

    async def requests(self, hello: gpb.GateHello) -> AsyncIterator[gpb.AttendRequest]:
        """Yield the hello, then what there is to say, or that the gate lives."""
        yield gpb.AttendRequest(asked=[gpb.Asked(hello=hello)])
        pace = Pacing()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await self._news.wait()
            await pace.wait()
            asked, self._asked = self._asked[:_MOST_ASKED], self._asked[_MOST_ASKED:]
            if not self._asked:
                self._news.clear()
            yield gpb.AttendRequest(asked=asked)


class Upstream:
    """The stream that there is, or will be again: the coordinator may go and come back."""

    def __init__(self, way: Way, hello: gpb.GateHello, welcome: Callable[[str], None]) -> None:
        self._way, self._hello, self._welcome = way, hello, welcome
        self._tickets: dict[int, Ticket] = {}
        self._next = 0
        self._words = Words()
        self._part = b""  # of views, the newest
        self.stub: rpc.GatesAsyncStub | None = None  # while the coordinator has welcomed us
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def ticket(self) -> Iterator[Ticket]:
        """Within this a client's call goes on; raises Unattended if there is no stream."""
        if self.stub is None:
            raise Unattended("the coordinator is away")
        self._next += 1
        ticket = self._tickets[self._next] = Ticket(self._next, self._ask)
        try:
            yield ticket
        finally:
            if self._tickets.pop(ticket.number, None) is not None and not ticket.ended:
                ticket.ask(gpb.Asked(gone=gpb.GateGone()), now=False)

    def _ask(self, asked: gpb.Asked, now: bool = True) -> None:
        self._words.add(asked, now)

    async def run(self) -> None:
        """Attend, again and again; raises UsageError if the coordinator does not want this gate."""
        pause = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                async with self._way.channel() as channel:
                    await self._attend(channel)
                reason = "the stream has ended"
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise UsageError(f"{self._way.target} is no fl-server that takes gates") from None
                reason = self._way.in_words(error)
            finally:
                self._lose()
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _LONGEST_PAUSE_S else pause
            if pause < _LONGEST_PAUSE_S:  # a coordinator may be away for days
                log.warning("coordinator_not_reached", coordinator=self._way.target, reason=reason)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def _attend(self, channel: grpc.aio.Channel) -> None:
        stub, self._words = rpc.GatesStub(channel), Words()
        async for message in stub.Attend(self._words.requests(self._hello)):
            for told in message.told:
                self._hear(stub, told)

    def _hear(self, stub: Any, told: gpb.Told) -> None:
        match told.WhichOneof("what"):
            case "welcome":
                self._welcome(told.welcome.run_id)
                self.stub = stub
                self.up.set()
                log.info("gate_attends", coordinator=self._way.target, run_id=told.welcome.run_id)
            case "part":
                self._part = told.part.bytes
            case "refused":
                raise UsageError(from_wire(told.refused).sentence)
            case _:
                if (ticket := self._tickets.get(told.ticket)) is not None:
                    ticket.tell(told, self._part)
                elif told.HasField("wanted"):  # its client went in the meantime
                    self._ask(gpb.Asked(ticket=told.ticket, gone=gpb.GateGone()))

    def _lose(self) -> None:
        """What was asked on a stream that is gone is answered by none."""
        self.stub = None
        self.up.clear()
        lost, self._tickets = self._tickets, {}
        for ticket in lost.values():
            ticket.lose()
