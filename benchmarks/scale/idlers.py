"""Clients that join and then only listen, each over a connection of its own, all in one process.

    python -m benchmarks.scale.idlers ADDRESS CLIENTS [AUTHORITY.pem]

says `all are here` when each has had its first view, and stays until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from edgeflock.common.wire.transport import PROTOCOL, channel_options
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc

HERE = "all are here"
_AT_A_TIME = 50


async def _listen(address: str, number: int, authority: bytes | None, gate: asyncio.Semaphore) -> None:
    """Join, have a view, and go on listening in a task of its own."""
    async with gate:
        if authority is None:
            channel = grpc.aio.insecure_channel(address, options=channel_options())
        else:
            trust = grpc.ssl_channel_credentials(authority)
            channel = grpc.aio.secure_channel(address, trust, options=channel_options())
        stub = rpc.AggregatorStub(channel)
        asked = pb.JoinRequest(
            protocol=PROTOCOL,
            software="0",
            client_id=f"i{number}",
            instance_id=os.urandom(16),
            life=os.urandom(8),
            digests=True,
            own_data=pb.OwnData(samples=8, input_shape=(4,), highest_label=1),
        )
        answer = await stub.Join(asked)
        if not answer.HasField("admission"):
            raise SystemExit(answer.refusal.sentence)
        views = aiter(stub.Watch(pb.WatchRequest(session=answer.admission.session)))
        await anext(views)
        _listening.add(asyncio.ensure_future(_hear(views, channel)))


async def _hear(views: AsyncIterator[pb.WatchResponse], channel: object) -> None:
    async for _ in views:
        pass
    raise SystemExit("the server has ended a stream")


_listening: set[asyncio.Future[None]] = set()


async def listen(address: str, clients: int, authority: bytes | None) -> None:
    """Let so many join, and stay."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gate = asyncio.Semaphore(_AT_A_TIME)
    await asyncio.gather(*(_listen(address, number, authority, gate) for number in range(clients)))
    print(HERE, flush=True)
    await asyncio.gather(*_listening)


if __name__ == "__main__":
    vouches = Path(sys.argv[3]).read_bytes() if len(sys.argv) > 3 else None
    asyncio.run(listen(sys.argv[1], int(sys.argv[2]), vouches))
