"""The baseline of a round: grpcio streams the same bytes down and up in 1 MiB chunks, and nothing else.

A grpc.aio server without serialisers, synchronous clients as processes, a barrier after every round.
`python -m benchmarks.bare_grpc server|client FOLDER --clients N --mib SIZE --rounds R`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc

from benchmarks.children import Children, environment

CHUNK = 1 << 20
PORT, TIMES = "port", "times.json"
_LIMIT_S = 180.0


def seconds_per_round(
    folder: Path, clients: int, mib: float, rounds: int, program: str = "benchmarks.bare_grpc"
) -> list[float]:
    """Run server and clients and return the seconds of every round but the first."""
    folder.mkdir()
    common = [str(folder), "--clients", str(clients), "--mib", str(mib), "--rounds", str(rounds)]
    start = [sys.executable, "-m", program]
    with Children() as children:
        children.start("server", [*start, "server", *common], folder / "log", environment())
        for number in range(clients):
            command = [*start, "client", *common, "--number", str(number)]
            children.start(f"client {number}", command, folder / "log", environment())
        children.finish(_LIMIT_S)
    at = read_times(folder)
    return [end - begin for begin, end in pairwise(at)]


def read_times(folder: Path) -> list[float]:
    """Return when each round ended, as the server has written it down."""
    at: list[float] = json.loads((folder / TIMES).read_text())
    return at


class Bare:
    """The server: sends the payload, takes what comes, and lets all go on when the last is there."""

    def __init__(self, clients: int, payload: list[bytes], rounds: int) -> None:
        self._payload = payload
        self._clients, self._here, self._gate = clients, 0, asyncio.Event()
        self._left = rounds
        self.at: list[float] = []
        self.over = asyncio.Event()

    async def down(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        for chunk in self._payload:
            yield chunk

    async def up(self, chunks: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in chunks:
            pass
        return await self.arrived()

    async def arrived(self) -> bytes:
        """Wait for the others; the last one settles the round."""
        self._here += 1
        if self._here < self._clients:
            await self._gate.wait()
            return b""
        await self.settle()
        self.at.append(time.perf_counter())
        gate, self._gate, self._here = self._gate, asyncio.Event(), 0
        gate.set()
        self._left -= 1
        if not self._left:
            self.over.set()
        return b""

    async def settle(self) -> None:
        """Nothing is left to do."""


async def serve(bare: Bare, folder: Path) -> None:
    """Answer until the last round is over, then write down when each ended."""
    handlers: dict[str, Any] = {
        "Down": grpc.unary_stream_rpc_method_handler(bare.down),
        "Up": grpc.stream_unary_rpc_method_handler(bare.up),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _write(folder / PORT, str(port))
    await bare.over.wait()
    await server.stop(5)
    _write(folder / TIMES, json.dumps(bare.at))


def address(folder: Path) -> str:
    """Wait for the server and return where it listens."""
    while not (folder / PORT).exists():
        time.sleep(0.05)
    return f"127.0.0.1:{(folder / PORT).read_text()}"


def _call(folder: Path, payload: list[bytes], rounds: int) -> None:
    with grpc.insecure_channel(address(folder)) as channel:
        down: Any = channel.unary_stream("/bare/Down")
        up: Any = channel.stream_unary("/bare/Up")
        for _ in range(rounds):
            for _chunk in down(b"", wait_for_ready=True):
                pass
            up(iter(payload))


def _payload(mib: float) -> list[bytes]:
    """Return the chunks of a payload that lies in memory as a model does: no chunk is another one again."""
    size = int(mib * (1 << 20))
    return list(_pieces(memoryview(os.urandom(size)), size))


def _pieces(data: memoryview, size: int) -> Iterator[bytes]:
    for start in range(0, size, CHUNK):
        yield bytes(data[start : start + CHUNK])


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.rename(path)


def asked() -> tuple[argparse.Namespace, list[bytes]]:
    """Read the command line; return it with the payload that it asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--mib", type=float, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--number", type=int, default=0, help="of the client")
    found = parser.parse_args()
    return found, _payload(found.mib)


def main() -> None:
    found, payload = asked()
    if found.role == "server":
        asyncio.run(serve(Bare(found.clients, payload, found.rounds), found.folder))
    else:
        _call(found.folder, payload, found.rounds)


if __name__ == "__main__":
    main()
