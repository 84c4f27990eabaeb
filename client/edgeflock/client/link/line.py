"""The line to the server: one channel shared by all hosted clients, a fresh one after a broken one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trust import Trust
from edgeflock.common.wire.transport import SMALL_CHUNK, channel_options

_OPTIONS = [*channel_options(), ("grpc.enable_retries", 0)]  # our back-off is the only one
# After a download was cut: what lies unread when the next cut comes is sent twice, so little may. By itself
# gRPC lets megabytes come ahead of a slow reader.
_CAREFUL = [*_OPTIONS, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", SMALL_CHUNK)]


class Channel:
    """One connection; closed when it is broken and nobody uses it any more."""

    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None = None, *, careful: bool = False
    ) -> None:
        options = _CAREFUL if careful else _OPTIONS
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(target, options=options)
        else:
            self.channel = grpc.aio.secure_channel(target, credentials, options=options)
        self.stub: Stub = Stub(self.channel)
        self.users = 0
        self.broken = False


class Link:
    """Hands out the channel that is current."""

    def __init__(self, trust: Trust) -> None:
        self.trust, self.target = trust, trust.address.target
        self._credentials = trust.credentials()
        self._current: Channel | None = None

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """Use the current channel; who leaves with an error of gRPC has found it broken."""
        channel = self._current
        if channel is None or channel.broken:
            careful = channel is not None and channel.stub.cut
            channel = self._current = Channel(self.target, self._credentials, careful=careful)
        channel.users += 1
        try:
            yield channel
        except grpc.aio.AioRpcError:
            channel.broken = True
            raise
        finally:
            channel.users -= 1
            if channel.broken and not channel.users:
                await channel.channel.close()

    async def close(self) -> None:
        if self._current and not self._current.users:
            await self._current.channel.close()


@dataclass
class Line:
    """A session on a channel, from Join until it is lost."""

    stub: Stub
    session: bytes
    lost: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def lose(self, error: Exception) -> None:
        """Say that the session is of no use any more."""
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # it may be that nobody looks any more

    @property
    def up(self) -> bool:
        return not self.lost.done()
