"""The contact of one client with the server: the line of the moment, attempts over many, reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import grpc
import structlog

from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.link.answers import Reason, ServerRefused
from edgeflock.client.link.line import Line
from edgeflock.client.link.transfer import Interrupted
from edgeflock.v1 import aggregator_pb2 as pb

log = structlog.get_logger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 10.0  # of a report


class _Hung(Exception):
    """The line is lost, and the call on it will not say so."""


class Contact:
    """Jobs outlive connections: they ask here for the line that there is, or wait for the next one."""

    def __init__(self, backoff: Backoff) -> None:
        self._connecting = backoff  # reset whenever something gets on
        self._line: Line | None = None
        self._up = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()

    def attach(self, line: Line) -> bool:
        """Use this line from now on; return whether it is a new one."""
        if self._line is line:
            return False
        self._line = line
        self._up.set()
        return True

    def detach(self) -> None:
        self._line = None
        self._up.clear()

    async def attempt(self, operation: Callable[[Line], Awaitable[T]], reached: Callable[[], int]) -> T:
        """Try until it works; `reached` tells how far it has come. Raises Refused if that is final."""
        backoff = Backoff(self._connecting.random)
        while True:
            line, before = await self._current(), reached()
            try:
                done = await _while_up(line, operation(line))
                self._connecting.reset()
                return done
            except ServerRefused as refused:
                if refused.reason in (Reason.REASON_UNKNOWN_SESSION, Reason.REASON_SUPERSEDED):
                    line.lose(refused)
                    continue
                if not refused.temporary:
                    raise
                delay_s = backoff.next_s(retry_after_ms=refused.retry_after_ms)
                log.info("try_again", reason=str(refused), delay_s=round(delay_s, 2))
            except Interrupted as error:
                delay_s = backoff.next_s()
                log.info("transfer_interrupted", reason=str(error), reached=reached())
            except grpc.aio.AioRpcError as error:
                line.lose(error)
                continue
            except (grpc.aio.UsageError, _Hung):  # the channel is closed, or as good as
                line.lose(Interrupted("the connection broke"))
                continue
            finally:
                if reached() > before:
                    backoff.reset()
                    self._connecting.reset()
            await asyncio.sleep(delay_s)

    async def _current(self) -> Line:
        while self._line is None or not self._line.up:
            self._up.clear()
            await self._up.wait()
        return self._line

    def tell(self, request: pb.ReportRequest, heard: Callable[[], None] | None = None) -> None:
        """Send a report that nobody waits for, if there is a line; `heard` is called when it was taken."""
        if self._line and self._line.up:
            call = asyncio.create_task(_report(self._line, request, heard))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def told(self, within_s: float) -> None:
        """Wait a little until the reports are there: who leaves is not listened to any more."""
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=within_s)


async def ask(line: Line, request: pb.ReportRequest) -> None:
    """Send a report that must arrive; raises Refused or grpc.aio.AioRpcError."""
    request.session = line.session
    answer = await line.stub.Report(request, timeout=CALL_TIMEOUT_S)
    if answer.HasField("refusal"):
        raise ServerRefused(answer.refusal)


async def _while_up(line: Line, operation: Awaitable[T]) -> T:
    """Wait for an operation on a line, but not longer than there is the line.

    A call that begins on a connection in the instant in which that breaks may wait for ever in gRPC's
    `write`, and a channel that is closed cancels the calls on it.
    """
    work = asyncio.ensure_future(operation)
    try:
        await asyncio.wait((work, line.lost), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    if work.cancelled():
        raise _Hung
    return work.result()


async def _report(line: Line, request: pb.ReportRequest, heard: Callable[[], None] | None) -> None:
    with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, ServerRefused):  # told when it can be
        await ask(line, request)
        if heard is not None:
            heard()
