"""A TCP proxy between clients and server that does to each connection what a script of faults says."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from support.fault import Fault, Kind, Script
from support.processes import LIMIT_S, until

_READ = 64 * 1024
_HARD = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
_QUEUED = 64  # pieces on their way in one direction

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class _Over(Exception):
    """The connection is to be reset."""


@dataclass(frozen=True)
class _Piece:
    """What is on its way; without data, the end."""

    data: bytes
    due: float = 0.0
    rate: float = math.inf


@dataclass
class _Lane:
    """One direction of a connection, and what is wrong with it by now."""

    reader: Reader
    writer: Writer
    faults: list[Fault]
    passed: int = 0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    rate: float = math.inf
    swallow: bool = False
    sent: bytearray = field(default_factory=bytearray)  # kept only if it shall be sent again
    queue: asyncio.Queue[_Piece] = field(default_factory=lambda: asyncio.Queue(_QUEUED))


class Proxy:
    """Listens on a port of its own, in a thread of its own, and forwards to where `upstream` says."""

    def __init__(self, upstream: Callable[[], str], script: Script = (), *, seed: int = 0) -> None:
        self.upstream, self.script = upstream, script
        self.address = ""
        self.connections = 0
        self.passed = {"up": 0, "down": 0}  # bytes forwarded over all connections
        self.rate = math.inf  # bytes per second of each direction of each connection, from now on
        self.lag_s = 0.0  # what comes from now on arrives so much later
        self.mute = False  # what comes from now on vanishes; nothing is closed
        self.refuses = False  # new connections are reset
        self._whole = (
            asyncio.Event()
        )  # cleared while the network is cut in two: nothing passes, nothing is lost
        self._dice = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._writers: set[Writer] = set()
        self._served: dict[socket.socket, asyncio.Task[None]] = {}  # every connection that was taken
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def part(self) -> None:
        """Cut the network in two; what is on its way arrives after `heal`, as TCP has it."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.set)

    def wait_for(self, direction: str, size: int, limit_s: float = LIMIT_S) -> None:
        """Wait until so many bytes have passed in that direction."""
        words = f"{size} bytes {direction} through the proxy"
        until(lambda: self.passed[direction] >= size or None, lambda: f"{words}: {self.passed}", limit_s)

    def reset_all(self) -> None:
        """Reset every connection there is."""
        for writer in list(self._writers):
            self._loop.call_soon_threadsafe(_reset, writer)

    # ------------------------------------------------------------------------------ connections

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._whole.set()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            self.address = f"127.0.0.1:{listener.getsockname()[1]}"
            self._loop.add_reader(listener, self._accept, listener)
            self._listening.set()
            self._loop.run_forever()
            self._loop.remove_reader(listener)
        self._loop.run_until_complete(self._end())
        self._loop.close()

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection: known from its first moment, so that none is left open at the end."""
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            taken, _ = listener.accept()
            self._served[taken] = self._loop.create_task(self._serve(taken))

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # a transport that was aborted closes in the loop's next turn
        for taken in self._served:
            taken.close()  # of a task that had not begun, or of one that has: closed already

    async def _serve(self, taken: socket.socket) -> None:
        number, self.connections = self.connections, self.connections + 1
        faults = self.script[number] if number < len(self.script) else ()
        with contextlib.suppress(OSError, asyncio.CancelledError):  # an OSError: the server is away
            reader, writer = await asyncio.open_connection(sock=taken)
            with self._kept(writer):
                if self.refuses:
                    return
                answers, there = await self._connect()
                with self._kept(there):
                    up, down = _lane(reader, there, faults, "up"), _lane(answers, writer, faults, "down")
                    await self._forward(up, down)

    async def _connect(self) -> tuple[Reader, Writer]:
        host, _, port = self.upstream().rpartition(":")
        return await asyncio.open_connection(host, int(port))

    @contextlib.contextmanager
    def _kept(self, writer: Writer) -> Iterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            _reset(writer)

    async def _forward(self, up: _Lane, down: _Lane) -> None:
        """Run both directions until both have ended or one fault has ended them."""
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for lane, other, name in ((up, down, "up"), (down, up, "down")):
                    group.create_task(self._take(lane, other, group))
                    group.create_task(self._give(lane, name))

    # ------------------------------------------------------------------------------ one direction

    async def _take(self, lane: _Lane, other: _Lane, group: asyncio.TaskGroup) -> None:
        """Read, queue what is to arrive, and let each fault happen at its byte."""
        keep = any(fault.kind is Kind.DUPLICATE for fault in lane.faults)
        while data := await lane.reader.read(_READ):
            while lane.faults and lane.passed + len(data) >= lane.faults[0].when:
                fault = lane.faults.pop(0)
                cut = fault.when - lane.passed
                await self._pass(lane, data[:cut], keep)
                await self._happen(fault, lane, other, group)
                data = data[cut:]
            await self._pass(lane, data, keep)
        await lane.queue.put(_Piece(b""))

    async def _pass(self, lane: _Lane, data: bytes, keep: bool) -> None:
        if not data:
            return
        lane.passed += len(data)
        if keep:
            lane.sent += data
        if not (lane.swallow or self.mute):
            late = self.lag_s + lane.delay_s + self._dice.uniform(0, lane.jitter_s)
            await lane.queue.put(_Piece(data, self._loop.time() + late, lane.rate))

    async def _give(self, lane: _Lane, name: str) -> None:
        """Write what is queued, each piece when its time has come and not faster than the rate."""
        while True:
            piece = await lane.queue.get()
            if not piece.data:
                lane.writer.write_eof()
                return
            await asyncio.sleep(piece.due - self._loop.time())
            rest = piece.data
            while rest:
                await self._whole.wait()
                rate = min(piece.rate, self.rate)
                part, rest = _parted(rest, rate)
                lane.writer.write(part)
                await lane.writer.drain()
                self.passed[name] += len(part)
                await asyncio.sleep(len(part) / rate)

    async def _happen(self, fault: Fault, lane: _Lane, other: _Lane, group: asyncio.TaskGroup) -> None:
        match fault.kind:
            case Kind.DELAY:
                lane.delay_s = fault.amount
            case Kind.JITTER:
                lane.jitter_s = fault.amount
            case Kind.RATE:
                lane.rate = fault.amount
            case Kind.CUT:
                raise _Over
            case Kind.REPLY_LOST:
                other.swallow = True
                group.create_task(_end_after(fault.amount))
            case Kind.HALF_CLOSE:
                lane.swallow = True
                await lane.queue.put(_Piece(b""))
            case Kind.FREEZE:
                await asyncio.sleep(fault.amount or math.inf)
            case Kind.BLACKHOLE:
                lane.swallow = True
                if fault.amount:
                    self._loop.call_later(fault.amount, setattr, lane, "swallow", False)
            case Kind.DUPLICATE:
                group.create_task(self._send_again(bytes(lane.sent)))

    async def _send_again(self, data: bytes) -> None:
        """Replay the bytes over another connection, and hear the server out."""
        answers, there = await self._connect()
        with self._kept(there), contextlib.suppress(OSError):
            there.write(data)
            while await answers.read(_READ):
                pass


async def _end_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise _Over


def _lane(reader: Reader, writer: Writer, faults: tuple[Fault, ...], name: str) -> _Lane:
    mine = sorted((fault for fault in faults if fault.target == name), key=lambda fault: fault.when)
    return _Lane(reader, writer, mine)


def _parted(data: bytes, rate: float) -> tuple[bytes, bytes]:
    """Return what passes within a twentieth of a second, and the rest."""
    size = len(data) if rate == math.inf else max(1, int(rate / 20))
    return data[:size], data[size:]


def _reset(writer: Writer) -> None:
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _HARD)
    writer.transport.abort()
