"""A small aggregator for rehearsing the client's side: it shows views, cuts, refuses as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from edgeflock.client.link.line import Channel
from edgeflock.client.link.trust import Trust
from edgeflock.common.payload.checksum import GRANULE, extend
from edgeflock.common.payload.package import Package
from edgeflock.common.wire.address import parse_address
from edgeflock.common.wire.messages import package_to_wire
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc
from edgeflock.v1 import bundle_pb2

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass
class Script:
    """What goes wrong, attempt by attempt; an attempt beyond the end of a list goes well."""

    cuts: list[int | None] = field(default_factory=list)  # end the stream after so many payload bytes
    refusals: list[pb.Refusal | None] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)  # the same, but in good order, as if that were all
    flips: list[int | None] = field(default_factory=list)  # damage the byte at this offset
    chunk: int = GRANULE
    credit: int = 1 << 40  # bytes beyond what is held
    lose_answer: int = 0  # so many times: take everything, then cut before RECEIVED
    outcome: pb.Outcome | None = None
    after_the_end: bool = False  # an outcome is said only when the run is over and the watch has ended


def turn(items: list[Any], attempt: int) -> Any:
    return items[attempt] if attempt < len(items) else None


class Rehearsal(rpc.AggregatorServicer):
    """Serves one package and takes one update at a time, and writes down what it saw."""

    def __init__(
        self,
        script: Script,
        package: Package | None = None,
        payload: bytes = b"",
        run: pb.Run | None = None,
    ) -> None:
        self.script = script
        self.run = run or pb.Run()
        self.view = pb.View()
        self.session = 0  # number of the last one
        self.join_refusals: list[pb.Refusal] = []
        self.report_refusals: list[pb.Refusal] = []
        self.joins: list[pb.JoinRequest] = []
        self.reports: list[pb.ReportRequest] = []
        self.leaves: list[str] = []
        self.watches = 0
        self.over = False  # a watch has ended with its run
        self._news = asyncio.Condition()
        self._cut = 0  # watches up to this number are cut
        self.package = package
        self.payload = payload
        self.offsets: list[int] = []  # where each Fetch began, or each Deliver went on
        self.sizes: list[list[int]] = []  # of the chunks of each attempt
        self.held = bytearray()
        self.beyond_credit = 0
        self.headers: list[pb.UpdateHeader] = []
        self.received: list[bytes] = []  # digests

    @property
    def attempts(self) -> int:
        return len(self.offsets)

    async def show(self, view: pb.View) -> None:
        """Push a view to whoever watches."""
        self.view = view
        await self.nudge()

    async def nudge(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def cut(self) -> None:
        """Break every open watch and forget the sessions."""
        self._cut = self.watches
        self.session += 1  # nobody has that one
        await self.nudge()

    async def until(self, condition: Callable[[], bool], *, limit_s: float = 20.0) -> None:
        """Wait until something that clients have done makes the condition true."""
        async with asyncio.timeout(limit_s), self._news:
            await self._news.wait_for(condition)

    def said(self, kind: str) -> list[pb.ReportRequest]:
        """Return the reports of one kind."""
        return [report for report in self.reports if report.WhichOneof("report") == kind]

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:  # noqa: N802
        self.joins.append(request)
        await self.nudge()
        if self.join_refusals:
            return pb.JoinResponse(refusal=self.join_refusals.pop(0))
        self.session += 1
        admission = pb.Admission(session=b"%d" % self.session, run=self.run)
        return pb.JoinResponse(admission=admission)

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        self.watches += 1
        number, shown = self.watches, None
        while True:
            if number <= self._cut:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            if shown != self.view:
                shown = self.view
                yield pb.WatchResponse(view=shown)
                if shown.HasField("ending"):
                    self.over = True
                    await self.nudge()
                    return
                continue
            async with self._news:
                if shown == self.view and number > self._cut:
                    await self._news.wait()

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:  # noqa: N802
        self.reports.append(request)
        await self.nudge()
        return pb.ReportResponse(refusal=self.report_refusals.pop(0) if self.report_refusals else None)

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:  # noqa: N802
        self.leaves.append(request.reason)
        await self.nudge()
        return pb.LeaveResponse()

    async def Fetch(self, request: pb.FetchRequest, context: Context) -> AsyncIterator[pb.FetchResponse]:  # noqa: N802
        attempt = self.attempts
        self.offsets.append(request.offset)
        self.sizes.append([])
        await self.nudge()
        if refusal := turn(self.script.refusals, attempt):
            yield pb.FetchResponse(refusal=refusal)
            return
        if not request.digest and self.package:
            yield pb.FetchResponse(package=package_to_wire(self.package))
        cut, flip = turn(self.script.cuts, attempt), turn(self.script.flips, attempt)
        end = turn(self.script.ends, attempt)
        size = request.chunk_bytes or self.script.chunk
        running = extend(0, self.payload[: request.offset])
        for offset in range(request.offset, len(self.payload), size):
            data = self.payload[offset : offset + size]
            if cut is not None and offset + len(data) > request.offset + cut:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            if end is not None and offset + len(data) > request.offset + end:
                return
            running = extend(running, data)
            if flip is not None and offset <= flip < offset + len(data):
                data = data[: flip - offset] + bytes([data[flip - offset] ^ 1]) + data[flip - offset + 1 :]
            self.sizes[-1].append(len(data))
            yield pb.FetchResponse(chunk=bundle_pb2.Chunk(offset=offset, data=data, crc32c=running))

    async def Deliver(  # type: ignore[override]  # noqa: N802 - the types know no reader and writer
        self, request_iterator: Any, context: Context
    ) -> None:
        attempt = self.attempts
        header = (await context.read()).header
        self.headers.append(header)
        self.held = self.held if self._same(header) else bytearray()
        await self.nudge()
        self.offsets.append(len(self.held))
        self.sizes.append([])
        if self.run.run_id and header.session != b"%d" % self.session:
            refusal = pb.Refusal(reason=pb.REASON_UNKNOWN_SESSION, sentence="join again", temporary=True)
            await context.write(pb.DeliverResponse(refusal=refusal))
        elif refusal := turn(self.script.refusals, attempt):
            await context.write(pb.DeliverResponse(refusal=refusal))
        elif self.script.outcome:
            if self.script.after_the_end:
                await self.until(lambda: self.over)
            await context.write(pb.DeliverResponse(outcome=self.script.outcome))
        else:
            await self._receive(header, context, turn(self.script.cuts, attempt))

    def _same(self, header: pb.UpdateHeader) -> bool:
        """Whether this is the update of the attempt before."""
        return len(self.headers) < 2 or self.headers[-2].package.digest == header.package.digest

    async def _receive(self, header: pb.UpdateHeader, context: Context, cut: int | None) -> None:
        size, begun = header.package.size_bytes, len(self.held)
        while len(self.held) < size:
            limit = len(self.held) + self.script.credit
            credit = pb.Credit(held=len(self.held), limit=limit, chunk_bytes=self.script.chunk)
            await context.write(pb.DeliverResponse(credit=credit))
            while len(self.held) < min(limit, size):
                if cut is not None and len(self.held) >= begun + cut:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                await self._take((await context.read()).chunk, limit)
        if self.script.lose_answer:
            self.script.lose_answer -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        self.received.append(header.package.digest)
        await context.write(pb.DeliverResponse(received=pb.Received()))
        await self.nudge()

    async def _take(self, chunk: bundle_pb2.Chunk, limit: int) -> None:
        if chunk.offset != len(self.held):
            raise RuntimeError(f"a chunk at {chunk.offset}, held are {len(self.held)}")
        self.held += chunk.data
        if extend(0, self.held) != chunk.crc32c:
            raise RuntimeError(f"another checksum at {chunk.offset}")
        self.beyond_credit += max(0, len(self.held) - limit)
        self.sizes[-1].append(len(chunk.data))


@asynccontextmanager
async def serving(servicer: rpc.AggregatorServicer) -> AsyncIterator[str]:
    """Serve on a free port of the loopback; gives host:port."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 5 << 20)])
    rpc.add_AggregatorServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def dialled(target: str) -> AsyncIterator[Channel]:
    channel = Channel(Trust(parse_address(target, "--server")))
    try:
        yield channel
    finally:
        await channel.close()
