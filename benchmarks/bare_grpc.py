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


def seconds_per_round(
    folder: Path, clients: int, mib: float, rounds: int, limit_s: float = 180.0
) -> list[float]:
    """Run server and clients and return the seconds of every round but the first."""
    folder.mkdir()
    common = [str(folder), "--clients", str(clients), "--mib", str(mib), "--rounds", str(rounds)]
    start = [sys.executable, "-m", "benchmarks.bare_grpc"]
    with Children() as children:
        children.start("server", [*start, "server", *common], folder / "log", environment())
        for number in range(clients):
            children.start(f"client {number}", [*start, "client", *common], folder / "log", environment())
        children.finish(limit_s)
    at = json.loads((folder / TIMES).read_text())
    return [end - begin for begin, end in pairwise(at)]


class _Bare:
    def __init__(self, clients: int, payload: list[bytes], rounds: int) -> None:
        self._payload = payload
        self._barrier = asyncio.Barrier(clients)
        self._left = rounds
        self.at: list[float] = []
        self.over = asyncio.Event()

    async def down(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        for chunk in self._payload:
            yield chunk

    async def up(self, chunks: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in chunks:
            pass
        if await self._barrier.wait() == 0:
            self.at.append(time.perf_counter())
            self._left -= 1
            if not self._left:
                self.over.set()
        return b""


async def _serve(folder: Path, clients: int, payload: list[bytes], rounds: int) -> None:
    bare = _Bare(clients, payload, rounds)
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


def _call(folder: Path, payload: list[bytes], rounds: int) -> None:
    while not (folder / PORT).exists():
        time.sleep(0.05)
    with grpc.insecure_channel(f"127.0.0.1:{(folder / PORT).read_text()}") as channel:
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--mib", type=float, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    asked = parser.parse_args()
    payload = _payload(asked.mib)
    if asked.role == "server":
        asyncio.run(_serve(asked.folder, asked.clients, payload, asked.rounds))
    else:
        _call(asked.folder, payload, asked.rounds)


if __name__ == "__main__":
    main()
