"""Operators who add, drop and replace clients, over the wire: who is told what, and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import control_pb2
from support.tiny_server import WAIT_S, Home, Peer, Served, operate


async def change(stub: Any, **asked: Any) -> str:
    """Change the roster; return why it was not."""
    answer = await stub.ChangeRoster(control_pb2.ChangeRosterRequest(**asked), timeout=WAIT_S)
    fault: str = answer.fault
    return fault


async def dismissal(peer: Peer) -> pb.Refusal:
    """Read views until the watch ends with a refusal."""
    while True:
        answer = await peer.answer()
        if answer.HasField("refusal"):
            return answer.refusal


async def newcomer(served: Served, name: str) -> Peer:
    peer = served.peer(name)
    await peer.enter()
    await peer.ready()
    return peer


def test_who_is_dropped_is_told_that_the_run_is_over_for_it_and_let_in_when_it_is_added(
    tmp_path: Path,
) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        for index in (0, 1):
            assert (await peers[index].deliver(served.made(index))).HasField("received")
        assert await change(stub, drop="c2") == ""
        await served.run.committed(1)
        told = await dismissal(peers[2])
        sentence = "the run is over for you: you were dropped, by its operator"
        assert (told.reason, told.temporary, told.sentence) == (pb.REASON_FINISHED, False, sentence)
        assert (await peers[2].join()).refusal.sentence == sentence
        status = await stub.Status(control_pb2.StatusRequest(), timeout=WAIT_S)
        assert ([one.client_id for one in status.members], status.clients) == (["c0", "c1"], 2)
        assert await change(stub, drop="c1") == (
            "without c1 there would be 1 of at least 2 clients (--min-updates): replace it"
        )
        assert await change(stub, add="c2") == ""
        again = await newcomer(served, "c2")
        await served.run.open(2)
        await served.finish_round(peers[:2])
        await served.run.open(3)
        await served.finish_round([*peers[:2], again])

    of = Home(tmp_path, min_updates=2)
    operate(of, talk)
    assert of.events("client_dropped") == [{"client": "c2", "seat": 2, "round": 1}]
    assert of.events("client_added") == [{"client": "c2", "seat": 2, "round": 2}]
    assert of.rows("SELECT round, verdict FROM outcomes WHERE seat = 2 ORDER BY round") == [
        (1, "discarded"), (3, "counted")
    ]  # fmt: skip
    assert of.rows("SELECT * FROM dismissed") == []


def test_who_replaces_another_has_its_seat_its_task_and_its_books(tmp_path: Path) -> None:
    async def before(served: Served, stub: Any) -> None:
        peers = await served.gather()
        assert (await peers[0].deliver(served.made(0))).HasField("received")
        await peers[2].deliver(served.made(2), cut=20)
        assert await change(stub, replace={"client_id": "c2", "by": "d7"}) == ""
        told = await dismissal(peers[2])
        assert told.sentence == "the run is over for you: d7 has your seat, by its operator"
        other = await newcomer(served, "d7")
        view = other.last
        if not view.HasField("task"):
            view = await other.view(lambda view: view.HasField("task"))
        assert (view.seat.index, view.task.round) == (2, 1)
        assert (await other.deliver(served.made(2))).HasField("received")

    async def after(served: Served, stub: Any) -> None:
        """The journal knows who has the seat, and the spool what came from it."""
        await served.run.open(1)
        assert served.run.received == [0, 2]
        assert (await served.peer("c2").join()).refusal.reason == pb.REASON_FINISHED
        peers = [served.peer(name) for name in ("c0", "c1", "d7")]
        for peer in peers:
            await peer.enter()
            await peer.ready()
        assert (await peers[1].deliver(served.made(1))).HasField("received")
        await served.run.committed(1)

    of = Home(tmp_path)
    operate(of, before)
    operate(of, after)
    assert of.events("client_replaced") == [{"client": "d7", "before": "c2", "seat": 2, "round": 1}]
    assert of.rows("SELECT seat, client_id, samples FROM seats WHERE seat = 2") == [(2, "d7", 10)]
    assert of.rows("SELECT client_id, seat, round, kept FROM dismissed") == [("c2", 2, 1, 0)]
    assert of.rows("SELECT verdict FROM outcomes WHERE round = 1") == [("counted",)] * 3


def test_an_update_that_was_there_when_its_client_was_dropped_counts_after_a_restart_too(
    tmp_path: Path,
) -> None:
    async def before(served: Served, stub: Any) -> None:
        peers = await served.gather()
        for index in (0, 2):
            assert (await peers[index].deliver(served.made(index))).HasField("received")
        assert await change(stub, drop="c2") == ""

    async def after(served: Served, stub: Any) -> None:
        peers = [served.peer(name) for name in ("c0", "c1")]
        for peer in peers:
            await peer.enter()
            await peer.ready()
        assert (await peers[1].deliver(served.made(1))).HasField("received")
        await served.run.committed(1)
        await served.run.open(2)
        assert served.run.cohort == (0, 1)

    of = Home(tmp_path, min_updates=2)
    operate(of, before)
    operate(of, after)
    assert of.rows("SELECT counted FROM rounds WHERE round = 1") == [("[0, 1, 2]",)]
    assert of.rows("SELECT samples FROM rosters ORDER BY number DESC LIMIT 1") == [('{"0": 10, "1": 10}',)]
