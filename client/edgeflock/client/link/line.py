"""The line to the server: a session on a channel that hosted clients share; a fresh one when it breaks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from edgeflock.client.config import ClientConfig, addresses
from edgeflock.client.link import wire
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trouble import unreached
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted, Introduction, ServerRefused, Unreached, View
from edgeflock.common.errors import BadValue, EdgeflockError
from edgeflock.common.run import RunDescription
from edgeflock.common.tuning.tuning import NOTHING, Tuning
from edgeflock.common.wire.address import Address, parse_address
from edgeflock.common.wire.messages import augment_to_wire, run_from_wire, task_to_wire, tuning_to_wire
from edgeflock.common.wire.transport import (
    MAX_MESSAGE,
    SLOWEST,
    SMALL_CHUNK,
    Options,
    channel_options,
    common_revision,
    spoken,
)
from edgeflock.v1 import aggregator_pb2 as pb

M = TypeVar("M", bound=Message)

# What must arrive may take as long as the largest message takes on the slowest line: the pings notice before
# that whether the server is there.
PATIENCE_S = MAX_MESSAGE / SLOWEST
REPORT_TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 2.0
_LONGEST = 200  # characters of a farewell

# After a download was cut: what lies unread when the next cut comes is sent twice, so little may. By itself
# gRPC lets megabytes come ahead of a slow reader.
_CAREFUL: Options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", SMALL_CHUNK)]


class Link:
    """Hands out the channel that is current, to each address."""

    def __init__(self, trust: Trust, proxy: str = "", addresses: Sequence[Address] = ()) -> None:
        self.address = trust.address
        self.addresses = tuple(addresses) or (trust.address,)  # where the run is reached, as far as was given
        self._trust, self._proxy = trust, proxy
        self._current: dict[Address, Channel] = {}

    @classmethod
    def of(cls, config: ClientConfig) -> Link:
        """Read the files that prove one to the other; raises UsageError with a sentence."""
        if config.proxy:
            # What was typed counts more than `no_proxy`; gRPC reads the name as it is written here.
            os.environ["no_grpc_proxy"] = "none"  # noqa: SIM112
        return cls(Trust.of(config), config.proxy or "", addresses(config))

    @property
    def target(self) -> str:
        return self.address.target

    @asynccontextmanager
    async def channel(self, address: Address | None = None) -> AsyncIterator[Channel]:
        """Use the current channel; it is broken for who leaves because nothing was reached, or a stranger:
        another may answer who dials anew."""
        at = address or self.address
        channel = self._current.get(at)
        if channel is None or channel.broken:
            careful = channel is not None and channel.stub.cut
            trust = replace(self._trust, address=at)
            channel = self._current[at] = Channel(trust, self._proxy, careful=careful)
        channel.users += 1
        try:
            yield channel
        except (Unreached, EdgeflockError) as error:
            channel.broken = channel.broken or not (isinstance(error, ServerRefused) and error.passes)
            raise
        finally:
            channel.users -= 1
            if channel.broken and not channel.users:
                await channel.close()

    async def close(self) -> None:
        for channel in self._current.values():
            if not channel.users:
                await channel.close()


class Channel:
    """One connection; closed when it is broken and nobody uses it any more."""

    def __init__(self, trust: Trust, proxy: str = "", *, careful: bool = False) -> None:
        options = [*channel_options(proxy), ("grpc.enable_retries", 0)]  # our back-off is the only one
        options += _CAREFUL if careful else []
        credentials = trust.credentials()
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(trust.address.target, options=options)
        else:
            self._channel = grpc.aio.secure_channel(trust.address.target, credentials, options=options)
        self._trust = trust
        self.stub: Stub = Stub(self._channel)
        self.users = 0
        self.broken = False

    async def join(self, who: Introduction, *, whole: bool = False) -> tuple[Line, RunDescription]:
        """Ask for a seat; return the session, and the run: its layouts by their digests, unless the whole is
        asked for (which takes a minute for 120 KB where a line carries 2 KiB/s).

        Raises ServerRefused, Unreached, or MalformedMessage for a run that cannot be.
        """
        with in_our_words(self._trust):
            request = wire.join_request(who, _software(), digests=not whole)
            answer = answered(await self.stub.Join(request, timeout=PATIENCE_S))
        if answer.HasField("refusal"):
            raise wire.refused(answer.refusal)
        if not answer.HasField("admission"):
            raise Unreached("its answer makes no sense", foreign=True)
        admission = answer.admission
        chosen = admission.protocol or 1
        if common_revision(spoken(), (chosen, chosen)) is None:
            raise Unreached("it speaks another revision than it was offered", foreign=True)
        gates, best = (_near(self._trust.address, text) for text in admission.gates), admission.gate
        line = Line(
            self.stub,
            admission.session,
            self._trust,
            gates=tuple(gate for gate in gates if gate is not None),
            best=_near(self._trust.address, best),
        )
        return line, run_from_wire(admission.run)

    async def close(self) -> None:
        await self._channel.close()


@contextmanager
def in_our_words(trust: Trust) -> Iterator[None]:
    """Raise Unreached in place of what gRPC raises when a call breaks."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise unreached(error, trust) from None


def answered(answer: M | None) -> M:
    """Return the answer to a call; raises Unreached if its server went away before it gave one: gRPC may take
    a call for done that has none."""
    if answer is None:
        raise Unreached("the server went away before it answered")
    return answer


@dataclass
class Line:
    """A session on a channel, from Join until it is lost."""

    stub: Stub
    session: bytes
    trust: Trust
    gates: tuple[Address, ...] = ()  # where else the run is reached, as the server told
    best: Address | None = None  # the one of them where this client had better be; None: here
    lost: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def lose(self, error: Exception) -> None:
        """Say that the session is of no use any more."""
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # it may be that nobody looks any more

    @property
    def up(self) -> bool:
        return not self.lost.done()

    async def views(self) -> AsyncIterator[View]:
        """Watch: yield every view until the server ends the stream; raises ServerRefused or Unreached."""
        call = self.stub.Watch(pb.WatchRequest(session=self.session))
        with in_our_words(self.trust):
            while (answer := await call.read()) is not grpc.aio.EOF:
                if answer.HasField("refusal"):
                    raise wire.refused(answer.refusal)
                if not answer.HasField("view"):
                    raise Interrupted("a message of the watch makes no sense")
                view = wire.view(answer.view)
                del answer  # it may hold a whole model, until there is more to read
                yield view
                del view

    async def ready(
        self,
        samples: int,
        class_counts: Sequence[int],
        layout_digest: bytes,
        augment: str,
        tuning: Tuning = NOTHING,
        task: str = "",
    ) -> None:
        """Say that data and model are there; raises ServerRefused or Unreached."""
        ready = pb.Ready(samples=samples, class_counts=class_counts, layout_digest=layout_digest)
        ready.augment, ready.task = augment_to_wire(augment), task_to_wire(task)
        if (told := tuning_to_wire(tuning)) is not None:
            ready.tuning.CopyFrom(told)
        await self.report(pb.ReportRequest(ready=ready), PATIENCE_S)

    async def report(self, request: pb.ReportRequest, within_s: float = REPORT_TIMEOUT_S) -> None:
        """Send a report; raises ServerRefused or Unreached."""
        request.session = self.session
        with in_our_words(self.trust):
            answer = answered(await self.stub.Report(request, timeout=within_s))
        if answer.HasField("refusal"):
            raise wire.refused(answer.refusal)

    async def leave(self, reason: str) -> None:
        """Say farewell: a courtesy, the server notices a client that is gone by itself."""
        request = pb.LeaveRequest(session=self.session, reason=reason[:_LONGEST])
        with suppress(grpc.aio.AioRpcError):
            await self.stub.Leave(request, timeout=LEAVE_TIMEOUT_S)


def _near(here: Address, text: str) -> Address | None:
    """Return an address that a server told; a port alone is at the host where it was reached. None: it makes
    no sense."""
    try:
        there = parse_address(text, "gate") if text else None
    except BadValue:
        return None
    return there.with_host(here.host) if there is not None and text.startswith(":") else there


@cache
def _software() -> str:
    return version("edgeflock")
