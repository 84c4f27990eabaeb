"""The way to the coordinator: its address, what proves one to the other, and a channel there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import Address, parse_address, require_trust
from edgeflock.common.wire.key import read_key
from edgeflock.common.wire.tls import read_authority
from edgeflock.common.wire.transport import channel_options
from edgeflock.server.gate.config import GateConfig

_WAY_TO_TLS = "--coordinator-ca with the authority that vouches for the coordinator"


@dataclass(frozen=True)
class Way:
    """How the coordinator is reached."""

    address: Address
    key: str  # by which it knows this gate
    authority: bytes | None = None  # None: plain text

    @classmethod
    def of(cls, config: GateConfig) -> Way:
        """Read the files that the options name; raises UsageError with a sentence."""
        address = parse_address(config.coordinator, "--coordinator")
        authority = read_authority(config.coordinator_ca, "--coordinator-ca")
        require_trust(address, "--coordinator", authority is not None or config.insecure, _WAY_TO_TLS)
        return cls(address, _key(config), authority)

    @property
    def target(self) -> str:
        return self.address.target

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """A connection, closed at the end."""
        options = [*channel_options(), ("grpc.enable_retries", 0)]
        if self.authority is None:
            channel = grpc.aio.insecure_channel(self.target, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(self.authority)
            channel = grpc.aio.secure_channel(self.target, credentials, options=options)
        try:
            yield channel
        finally:
            await channel.close()

    def in_words(self, error: grpc.aio.AioRpcError) -> str:
        """Return why it was not reached."""
        return (error.details() or error.code().name).splitlines()[0][:200]


def _key(config: GateConfig) -> str:
    if config.key is None:
        raise UsageError("--key has to name the file of fl-server's --gate-key")
    return read_key(config.key, "--key")
