"""Repeated offenders on the wire: refused, counted, left out, told why, let in again; and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.payload.checksum import extend
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import control_pb2
from support.tiny_run import Made, update, with_number
from support.tiny_server import WAIT_S, Home, Peer, Served, operate

AFTER, ROUNDS = 3, 2


def home(root: Path, **rules: Any) -> Home:
    judged = {"quarantine_after": AFTER, "quarantine_rounds": ROUNDS, "min_updates": 1, "rounds": 20}
    return Home(root, **{**judged, **rules})


def another_layout(served: Served) -> Made:
    return update(Home(served.home.run_dir, numbers=41).layouts, 0, served.run.now.round)


async def another_checksum(peer: Peer, made: Made) -> pb.DeliverResponse:
    """Deliver bytes that are not those of the header."""
    upload = peer.upload()
    await upload.send(header=made.header(peer.session, 1))
    assert (await upload.read()).HasField("credit")
    first = made.payload[:100]
    await upload.chunk(0, first, extend(0, first) ^ 1)
    return await upload.read()


async def status_of(stub: Any, client: str) -> control_pb2.ClientStatus:
    status = await stub.Status(control_pb2.StatusRequest(), timeout=WAIT_S)
    found: control_pb2.ClientStatus = next(one for one in status.members if one.client_id == client)
    return found


async def offend(served: Served, peer: Peer, times: int = AFTER) -> None:
    for _ in range(times):
        answer = await peer.deliver(another_layout(served))
        assert answer.refusal.reason == pb.REASON_WRONG_LAYOUT


async def counted(served: Served, index: int, times: int) -> None:
    """Wait until the journal has so many bad updates of a client."""

    def refused() -> int:
        conduct = served.run.now.members[index].conduct
        return 0 if conduct is None else conduct.refused

    await served.run.until(lambda: refused() == times)


async def quarantined(peer: Peer) -> pb.View:
    held = peer.last.HasField("quarantine")
    return peer.last if held else await peer.view(lambda view: view.HasField("quarantine"))


async def others_deliver(served: Served, peers: list[Peer]) -> None:
    """Let all but the first deliver, which ends the round: nobody waits for it."""
    round = served.run.now.round
    for index in range(1, len(peers)):
        assert (await peers[index].deliver(served.made(index))).HasField("received")
    await served.run.committed(round)
    await served.run.open(round + 1)


def test_a_client_whose_updates_are_bad_is_left_out_told_why_and_comes_back(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        await offend(served, peers[0], AFTER - 1)
        good = served.made(0)
        await counted(served, 0, AFTER - 1)
        assert (await status_of(stub, "c0")).bad_updates == AFTER - 1
        await offend(served, peers[0], 1)
        view = await quarantined(peers[0])
        assert view.quarantine == pb.Quarantine(until_round=1 + ROUNDS, reason="wrong_layout")
        assert not view.HasField("task")
        refused = (await peers[0].deliver(good)).refusal
        assert (refused.reason, refused.temporary) == (pb.REASON_QUARANTINED, False)
        assert refused.sentence == (
            "you take no part up to and with round 3: 3 bad updates came from you, the last one wrong_layout"
        )
        member = await status_of(stub, "c0")
        assert (member.bad_updates, member.quarantine, member.online) == (AFTER, view.quarantine, True)
        await others_deliver(served, peers)
        assert (await peers[0].deliver(good, round=1)).outcome.reason == pb.REASON_QUARANTINED
        view = await peers[0].view(lambda view: view.round == 2)
        assert [(item.counted, item.reason) for item in view.outcomes] == [(False, pb.REASON_QUARANTINED)]
        for _ in range(ROUNDS):
            assert served.run.cohort == (1, 2)
            await others_deliver(served, peers)
        view = await peers[0].view(lambda view: view.HasField("task"))
        assert not view.HasField("quarantine")
        await served.finish_round(peers)

    of = home(tmp_path)
    operate(of, talk)
    assert of.events("client_quarantined") == [
        {"client": "c0", "until": 3, "refused": AFTER, "reason": "wrong_layout"}
    ]
    assert of.events("client_released") == [{"client": "c0", "reason": "its quarantine ends with round 3"}]
    assert of.rows("SELECT seat, refused, in_row FROM conduct") == [(0, AFTER, 0)]


def test_a_restart_forgets_neither_the_count_nor_the_quarantine(tmp_path: Path) -> None:
    async def before(served: Served, stub: Any) -> None:
        peers = await served.gather()
        await offend(served, peers[0])
        await quarantined(peers[0])
        await offend(served, peers[1], AFTER - 1)
        await counted(served, 1, AFTER - 1)

    async def after(served: Served, stub: Any) -> None:
        peers = await served.gather()
        view = await quarantined(peers[0])
        assert (view.quarantine.until_round, view.HasField("task")) == (1 + ROUNDS, False)
        assert (await peers[0].deliver(served.made(0))).refusal.reason == pb.REASON_QUARANTINED
        if not peers[1].last.HasField("task"):
            await peers[1].view(lambda view: view.HasField("task"))
        await offend(served, peers[1], 1)
        assert (await quarantined(peers[1])).quarantine.until_round == 1 + ROUNDS
        assert (await peers[2].deliver(served.made(2))).HasField("received")
        await served.run.committed(1)

    of = home(tmp_path)
    operate(of, before)
    operate(of, after)
    query = "SELECT seat, verdict FROM outcomes WHERE round = 1 ORDER BY seat"
    assert of.rows(query) == [(0, "quarantined"), (1, "quarantined"), (2, "counted")]


def test_an_operator_lets_a_client_in_again(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        async def release(client: str) -> bool:
            answer = await stub.Release(control_pb2.ReleaseRequest(client_id=client), timeout=WAIT_S)
            return bool(answer.released)

        peers = await served.gather()
        assert [await release(name) for name in ("c0", "nobody", "")] == [False, False, False]
        await offend(served, peers[0])
        await quarantined(peers[0])
        assert await release("c0")
        await peers[0].view(lambda view: not view.HasField("quarantine"))
        await others_deliver(served, peers)
        await peers[0].view(lambda view: view.HasField("task"))
        await served.finish_round(peers)
        assert (await status_of(stub, "c0")).bad_updates == AFTER

    of = home(tmp_path)
    operate(of, talk)
    assert of.events("client_released") == [{"client": "c0", "reason": "an operator trusts it again"}]


def test_numbers_that_are_not_finite_count_as_bad_updates(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        for _ in range(AFTER):
            round = served.run.now.round
            poisoned = with_number(served.made(0), 7, float("nan"))
            assert (await peers[0].deliver(poisoned)).HasField("received")
            for index in (1, 2):
                await peers[index].deliver(served.made(index))
            await served.run.open(round + 1)
        assert served.run.cohort == (1, 2)
        assert (await quarantined(peers[0])).quarantine.reason == "non_finite"
        await others_deliver(served, peers)

    of = home(tmp_path)
    operate(of, talk)
    (said,) = of.events("client_quarantined")
    assert (said["client"], said["until"], said["reason"]) == ("c0", AFTER + ROUNDS, "non_finite")


def test_a_bad_checksum_counts_and_a_cut_does_not(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        for _ in range(2 * AFTER):
            upload = peers[1].upload()
            made = served.made(1)
            await upload.send(header=made.header(peers[1].session, 1))
            assert (await upload.read()).HasField("credit")
            await upload.call.done_writing()
            assert (await upload.read()).refusal.reason == pb.REASON_BUSY
        for _ in range(AFTER):
            answer = await another_checksum(peers[0], served.made(0))
            assert answer.refusal.reason == pb.REASON_BAD_TRANSFER
        assert (await quarantined(peers[0])).quarantine.reason == "bad_transfer"
        assert (await status_of(stub, "c1")).bad_updates == 0
        await others_deliver(served, peers)

    operate(home(tmp_path), talk)


@pytest.mark.parametrize("name", ["a round of the future", "a task that it has not"])
def test_what_an_honest_client_may_send_is_refused_and_held_against_nobody(tmp_path: Path, name: str) -> None:
    """A server that came back from a backup is behind its clients."""

    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        for _ in range(3 * AFTER):
            refused = (await peers[0].deliver(served.made(0), round=7 if "future" in name else 0)).refusal
            assert refused.reason == pb.REASON_NO_SUCH_TASK
        assert (await status_of(stub, "c0")).bad_updates == 0
        await served.finish_round(peers)

    operate(home(tmp_path), talk)


def test_a_stranger_gets_nobody_into_quarantine(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        stranger = served.peer("c0", b"another instance")
        assert (await stranger.join()).refusal.reason == pb.REASON_DUPLICATE_ID
        for _ in range(3 * AFTER):
            answer = await stranger.deliver(another_layout(served))
            assert answer.refusal.reason == pb.REASON_UNKNOWN_SESSION
        assert (await status_of(stub, "c0")).bad_updates == 0
        await served.finish_round(peers)

    operate(home(tmp_path), talk)
