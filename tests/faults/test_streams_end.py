"""Streams and sessions that nobody uses come to an end, and hold nothing meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from edgeflock.common.payload.checksum import extend
from edgeflock.server.engine.loop import Threads
from edgeflock.server.service import flow, sessions
from edgeflock.v1 import aggregator_pb2 as pb
from support.processes import until
from support.tiny_server import Home, Peer, Served, Upload, serve


def watching(served: Served) -> list[int]:
    return [session.watching for session in served.run.sessions]


@pytest.mark.promise("R9")
def test_a_delivery_whose_header_never_comes_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "SLOWEST_BYTES_PER_S", 2 << 20)

    async def talk(served: Served) -> None:
        silent = served.peer().upload()
        assert (await silent.read()).refusal.reason == pb.REASON_TOO_SLOW
        await served.check_alive()

    serve(Home(tmp_path, rounds=1), talk)


@pytest.mark.promise("R9")
def test_a_delivery_that_does_not_use_its_credit_is_closed_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made, slow = served.made(0), peers[0].upload()
        monkeypatch.setattr(flow, "SLOWEST_BYTES_PER_S", 1 << 20)
        await slow.send(header=made.header(peers[0].session, 1))
        assert (await slow.read()).HasField("credit")
        await slow.chunk(0, made.payload[:50], extend(0, made.payload[:50]))
        assert (await slow.read()).refusal.reason == pb.REASON_TOO_SLOW
        assert served.service.pool.outstanding == 0
        monkeypatch.undo()
        await served.finish_round(peers)

    serve(Home(tmp_path, rounds=1), talk)


@pytest.mark.promise("R9")
def test_a_sender_of_single_bytes_is_too_slow_however_often_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made, slow = served.made(0), peers[0].upload()
        monkeypatch.setattr(flow, "SLOWEST_BYTES_PER_S", 1 << 20)
        await slow.send(header=made.header(peers[0].session, 1))
        answer = asyncio.create_task(refused(slow))
        offset = 0
        while not answer.done():
            assert offset < len(made.payload), "it got away with it"
            await slow.chunk(offset, made.payload[offset : offset + 1], extend(0, made.payload[: offset + 1]))
            offset += 1
            await asyncio.wait([answer], timeout=0.05)
        assert (await answer).refusal.reason == pb.REASON_TOO_SLOW
        monkeypatch.undo()
        await served.finish_round(peers)

    serve(Home(tmp_path, rounds=1), talk)


async def refused(upload: Upload) -> pb.DeliverResponse:
    """Read on until the server ends the stream."""
    while (answer := await upload.read()).HasField("credit"):
        pass
    return answer


@pytest.mark.promise("R9")
def test_a_delivery_ends_with_its_round(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        late, upload = served.made(2), peers[2].upload()
        await upload.send(header=late.header(peers[2].session, 1))
        await upload.read()
        for index in (0, 1):
            await peers[index].deliver(served.made(index))
        served.run.overdue()
        assert (await upload.read()).refusal.reason == pb.REASON_BUSY
        assert served.service.pool.outstanding == 0
        await served.run.committed(1)

    serve(Home(tmp_path, rounds=1, min_updates=2), talk)


@pytest.mark.promise("R11")
def test_ids_that_only_join_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_STRANGERS", 10)

    async def talk(served: Served) -> None:
        watching, first = served.peer("w"), served.peer("x0")
        await watching.enter()
        await first.join()
        for number in range(1, 30):
            await first.join(client_id=f"x{number}")
        assert len(list(served.run.sessions)) == 10 + 3 + 1, "strangers, as many as have a seat to take, w"
        assert served.run.sessions.by_id("w") is not None
        assert served.run.sessions.by_id("x0") is None
        watching.watching.cancel()
        await served.run.until(lambda: not served.run.online)
        await served.check_alive()

    serve(Home(tmp_path, rounds=1), talk)


async def superseded(peer: Peer) -> None:
    """Wait until the peer's stream says so, whatever views come before."""
    while (await peer.answer()).refusal.reason != pb.REASON_SUPERSEDED:
        pass


def test_a_superseded_client_that_never_watches_again_is_not_online(tmp_path: Path) -> None:
    """Otherwise an online run puts it into cohorts for ever."""

    async def talk(served: Served) -> None:
        first, second = served.peer("c0", b"1" * 16), served.peer("c0", b"1" * 16)
        await first.enter()
        assert "c0" in served.run.online
        await second.join()
        await superseded(first)
        await served.run.until(lambda: "c0" not in served.run.online)

    serve(Home(tmp_path, cohort=1, online=True), talk)


def test_a_superseded_client_that_watches_again_is_online(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        first, second = served.peer("c0", b"1" * 16), served.peer("c0", b"1" * 16)
        await first.enter()
        await second.enter()
        await superseded(first)
        await served.run.until(lambda: watching(served) == [1])
        assert "c0" in served.run.online

    serve(Home(tmp_path, cohort=1, online=True), talk)


@pytest.mark.promise("R11")
def test_the_threads_of_a_run_are_there_from_the_beginning() -> None:
    async def use(threads: Threads) -> list[int]:
        return list(await asyncio.gather(*(threads.write(abs, -number) for number in range(9))))

    before, threads = set(threading.enumerate()), Threads()  # some of these may end meanwhile
    try:
        there = set(threading.enumerate()) - before
        assert there
        assert asyncio.run(use(threads)) == list(range(9))
        assert set(threading.enumerate()) - before == there
    finally:
        threads.shut()  # who goes waits for none of them: one may stand at a disk
    until(lambda: set(threading.enumerate()) <= before or None, lambda: str(threading.enumerate()))
