"""The contact of one client with the server over many lines: transfers, what is owed to it, reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

import grpc
import structlog

from edgeflock.client.costs import RoundCost
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.keeping.models import ArrivingModel
from edgeflock.client.keeping.outbox import OutboxEntry
from edgeflock.client.link import wire
from edgeflock.client.link.account import Account
from edgeflock.client.link.line import Line, in_our_words
from edgeflock.client.link.pace import Journey, Pace
from edgeflock.client.link.transfer import Incoming, IncomingModel, Outgoing, Target, deliver, fetch
from edgeflock.client.protocol import Interrupted, Parcel, ServerRefused, Settlement, Unreached
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload.layout import ModelLayouts
from edgeflock.common.payload.package import Package
from edgeflock.v1 import aggregator_pb2 as pb

log = structlog.get_logger(__name__)

T = TypeVar("T")
Wish = Callable[[], Coroutine[Any, Any, None]]  # comes true when somebody else would be in this one's place

LAST_WORDS_S = 4.0  # that a client which has heard the end waits for its reports, twice at most


async def _never() -> None:
    await asyncio.Event().wait()


class _Hung(Exception):
    """The line is lost, and the call on it will not say so."""


class Waiting(Protocol):
    """Who keeps the time of a client: waiting for a line is no delivering."""

    def idle(self) -> AbstractContextManager[None]:
        """Within this the client waits, whatever it is about to do."""
        ...

    def was_idle(self, seconds: float) -> None:
        """So long nothing has moved of what is on its way."""
        ...


class Contact:
    """Jobs outlive connections: they ask here for the line that there is, or wait for the next one."""

    def __init__(self, backoff: Backoff, waiting: Waiting) -> None:
        self._waiting = waiting
        self._connecting = backoff  # reset whenever something gets on
        self._line: Line | None = None
        self._up = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._account = Account(self._tell_cost)
        self._sent_bytes = 0
        self._down, self._up_pace = Pace(), Pace()

    def attach(self, line: Line) -> bool:
        """Use this line from now on; return whether it is a new one, which is told what is owed."""
        if self._line is line:
            return False
        self._line = line
        self._up.set()
        self._account.tell()
        return True

    def detach(self) -> None:
        self._line = None

    # ------------------------------------------------------------------------------- transfers

    async def fetch(self, round: int, parcel: Parcel, target: Target, wish: Wish) -> Incoming:
        """Fetch what did not come with the task; raises ServerRefused if it is not to be had.

        Raises Interrupted if there is no line when the wish for what `target` takes up comes true.
        """
        incoming = Incoming(round, parcel.scope, parcel.package, target)
        if not incoming.take_whole(parcel.payload):
            incoming.journey = self._down.journey(incoming.package.size_bytes)
            await self.attempt(
                lambda line: fetch(line.stub, line.session, incoming),
                lambda: incoming.position,
                incoming.journey,
                wish,
            )
            self._down.learn(incoming.journey, incoming.package.size_bytes)
        return incoming

    async def bring(self, round: int, arrival: ArrivingModel, layouts: ModelLayouts) -> Package:
        """Fetch a model that is offered; it goes on with what has arrived of it, in whichever process.

        Raises ServerRefused if it is not to be had, LayoutMismatch or CorruptPayload if it is another's.
        """
        incoming = await asyncio.to_thread(IncomingModel, round, arrival, layouts)
        await self.attempt(
            lambda line: fetch(line.stub, line.session, incoming),
            lambda: incoming.position,
            incoming.journey,
        )
        return incoming.package

    async def deliver(self, entry: OutboxEntry, payload: int) -> Settlement | None:
        """Deliver an update, and the costs of the round before with it; `payload` is a descriptor.

        Return None when the server has received it, or its settlement if there is one.

        Raises ServerRefused if the server will never take it.
        """
        owed = self._account.previous
        outgoing, size = Outgoing(entry, payload, owed), entry.package.size_bytes
        outgoing.journey = self._up_pace.journey(size)
        try:
            settlement = await self.attempt(
                lambda line: deliver(line.stub, line.session, outgoing),
                lambda: outgoing.reached,
                outgoing.journey,
            )
            self._up_pace.learn(outgoing.journey, size)
        finally:
            self._sent_bytes += outgoing.sent_bytes
        self._account.heard(owed)
        return settlement

    def take_sent_bytes(self) -> int:
        """Return the payload that went up since the last call."""
        taken, self._sent_bytes = self._sent_bytes, 0
        return taken

    async def attempt(
        self,
        operation: Callable[[Line], Awaitable[T]],
        reached: Callable[[], int],
        journey: Journey,
        wish: Wish = _never,
    ) -> T:
        """Try until it works; `reached` tells how far it has come. Raises ServerRefused if that is final, and
        Interrupted if there is no line when the wish of others comes true."""
        backoff = Backoff(self._connecting.random)
        while True:
            line, before = await self._current(wish), reached()
            journey.begin()
            idle_s = journey.idle_s
            try:
                with in_our_words(line.trust):
                    done = await _while_up(line, operation(line))
                self._connecting.reset()
                return done
            except ServerRefused as refused:
                if refused.anew:
                    line.lose(refused)
                    continue
                if not refused.temporary:
                    raise
                delay_s = backoff.next_s(retry_after_ms=refused.retry_after_ms)
                log.info("try_again", reason=str(refused), delay_s=round(delay_s, 2))
            except Interrupted as error:
                delay_s = backoff.next_s()
                log.info("transfer_interrupted", reason=str(error), reached=reached())
            except Unreached as error:
                line.lose(error)
                journey.cut()
                continue
            except (grpc.aio.UsageError, _Hung):  # the channel is closed, or as good as
                line.lose(Interrupted("the connection broke"))
                journey.cut()
                continue
            finally:
                self._waiting.was_idle(journey.idle_s - idle_s)  # what nothing moved in was waiting
                if reached() > before:
                    backoff.reset()
                    self._connecting.reset()
            with self._waiting.idle():
                await asyncio.sleep(delay_s)

    async def _current(self, wish: Wish) -> Line:
        if self._line is not None and self._line.up:
            return self._line
        with self._waiting.idle():
            while self._line is None or not self._line.up:
                self._up.clear()
                if not await _before(self._up.wait(), wish()):
                    raise Interrupted("another client waits, and there is no line")
            return self._line

    # ------------------------------------------------------------------------------- reports

    def progress(
        self, round: int, *, done: int, total: int, cpu_s: float, temperature_c: float | None
    ) -> None:
        """Tell how far a training is."""
        said = pb.Progress(
            round=round, steps_done=done, steps_total=total, cpu_s=cpu_s, temperature_c=temperature_c
        )
        self._tell(pb.ReportRequest(progress=said))

    def refuse(self, round: int, error: EdgeflockError) -> None:
        """Say that this client cannot do the task; the round goes on without it."""
        self._account.refuse(round)
        self._tell(pb.ReportRequest(refused=wire.task_refused(round, error)))

    def owe(self, cost: RoundCost) -> None:
        """A round has its verdict: this is what it took, told until it was heard."""
        self._account.owe(cost)

    def tell_owed(self) -> None:
        self._account.tell()

    async def told(self, within_s: float) -> None:
        """Wait a little until the reports are there: who leaves is not listened to any more."""
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=within_s)

    async def close(self, rest: Callable[[], RoundCost]) -> None:
        """The run is over: tell what is owed, and with the last round what came after its verdict."""
        await self.told(LAST_WORDS_S)  # what is on its way must not come after the last word
        self._account.close(rest())
        await self.told(LAST_WORDS_S)

    def _tell_cost(self, cost: RoundCost, heard: Callable[[], None]) -> None:
        self._tell(pb.ReportRequest(cost=wire.round_cost(cost)), heard)

    def _tell(self, request: pb.ReportRequest, heard: Callable[[], None] | None = None) -> None:
        """Send a report that nobody waits for, if there is a line; `heard` is called when it was taken."""
        if self._line and self._line.up:
            call = asyncio.create_task(_report(self._line, request, heard))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)


async def _before(one: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object]) -> bool:
    """Wait for either; return whether the first one is done."""
    both = (asyncio.ensure_future(one), asyncio.ensure_future(other))
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return both[0].done()
    finally:
        for task in both:
            task.cancel()


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
    with suppress(Unreached, grpc.aio.UsageError, ServerRefused):  # told when it can be
        await line.report(request)
        if heard is not None:
            heard()
