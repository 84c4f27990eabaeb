"""The operator's service on a Unix socket and on loopback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from edgeflock.server.core.decisions import EndingKind
from edgeflock.server.core.phases import Phase
from edgeflock.v1 import aggregator_pb2, control_pb2_grpc
from edgeflock.v1 import control_pb2 as pb
from support.tiny_server import MIB, WAIT_S, Home, OperatorsTalk, Served, operate

BOTH = pytest.mark.parametrize("where", ["socket", "loopback"])


def control(home: Home, where: str, talk: OperatorsTalk) -> None:
    """Serve the run and talk to it as its operator."""
    operate(home, talk, loopback=where == "loopback")


@BOTH
def test_status_says_where_the_run_is_and_who_is_there(tmp_path: Path, where: str) -> None:
    async def talk(served: Served, stub: Any) -> None:
        early = served.peer("b")
        await early.enter()
        status = await stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        assert (status.run_id, status.state) == ("tiny", aggregator_pb2.RUN_STATE_GATHERING)
        assert [(member.client_id, member.seated) for member in status.members] == [("b", False)]
        late = served.peer("a")
        await late.enter()
        for peer in (early, late):
            await peer.ready(samples=7)
        await served.run.open(1)
        await late.deliver(served.made(0))
        await early.stub.Leave(aggregator_pb2.LeaveRequest(session=early.session), timeout=WAIT_S)
        status = await stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        assert (status.state, status.round, status.rounds, status.clients, status.method, status.run_dir) == (
            aggregator_pb2.RUN_STATE_RUNNING, 0, 3, 2, "fedavg", str(served.home.run_dir)
        )  # fmt: skip
        unseen = status.members[0].unseen_s
        assert 0 <= unseen < WAIT_S
        assert list(status.members) == [
            pb.ClientStatus(
                client_id="a",
                index=0,
                seated=True,
                online=True,
                ready=True,
                samples=7,
                in_cohort=True,
                received=True,
                unseen_s=unseen,
                device=aggregator_pb2.Device(),
                software="test",
            ),
            pb.ClientStatus(client_id="b", index=1, seated=True, ready=True, samples=7, in_cohort=True),
        ]

    control(Home(tmp_path, clients=2), where, talk)


def test_status_says_how_far_the_open_round_and_its_members_are(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        made, upload = served.made(0), peers[0].upload()
        await upload.send(header=made.header(peers[0].session, 1))
        credit = (await upload.read()).credit
        await upload.feed(made.payload, credit, MIB, MIB)
        await peers[1].report(progress=aggregator_pb2.Progress(round=1, steps_done=9, steps_total=4))
        await peers[2].report(progress=aggregator_pb2.Progress(round=7, steps_done=1, steps_total=4))
        status = await stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        while not status.members[0].upload_held:  # the chunk is on its way to the disk
            status = await stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        first, second, third = status.members
        assert (first.upload_held, first.upload_size) == (MIB, len(made.payload))
        assert (second.steps_done, second.steps_total) == (4, 4), "no more than all is believed"
        assert (third.steps_done, third.steps_total) == (0, 0), "that is of another round"
        assert (status.open.round, status.open.phase, status.open.closing) == (1, "open", False)
        assert 0 < status.open.elapsed_s < WAIT_S < status.open.remaining_s
        assert list(status.budgets) == []

    control(Home(tmp_path, numbers=MIB), "socket", talk)


@BOTH
def test_pause_finishes_the_open_round_and_resume_opens_the_next(tmp_path: Path, where: str) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        await stub.Pause(pb.PauseRequest(), timeout=WAIT_S)
        await served.finish_round(peers)
        status = await stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        assert (status.state, status.reason, status.round) == (
            aggregator_pb2.RUN_STATE_PAUSED, "paused by the operator", 1
        )  # fmt: skip
        await peers[0].view(lambda view: view.state == aggregator_pb2.RUN_STATE_PAUSED)
        await stub.Resume(pb.ResumeRequest(), timeout=WAIT_S)
        await served.run.open(2)
        await served.finish_round(peers)

    control(Home(tmp_path), where, talk)


@pytest.mark.parametrize(
    ("given", "said"),
    [("the paper is done", "the paper is done"), ("", "stopped by the operator"), ("x" * 900, "x" * 200)],
)
def test_stop_ends_the_run_with_its_reason(tmp_path: Path, given: str, said: str) -> None:
    async def talk(served: Served, stub: Any) -> None:
        await served.gather()
        await stub.Stop(pb.StopRequest(reason=given), timeout=WAIT_S)
        ending = await served.run.ended
        assert ending is not None
        assert (ending.kind, ending.reason) == (EndingKind.STOPPED, said)
        status = await stub.Status(pb.StatusRequest(), timeout=WAIT_S)
        assert (status.state, status.reason) == (aggregator_pb2.RUN_STATE_FINISHED, said)
        assert (served.home.run_dir / "model.safetensors").exists()
        for call, request in ((stub.Pause, pb.PauseRequest()), (stub.Resume, pb.ResumeRequest())):
            await call(request, timeout=WAIT_S)
        assert served.run.now.phase is Phase.ENDED

    control(Home(tmp_path), "socket", talk)


async def events(stub: Any, after: int, last: str) -> list[Any]:
    """Read events from a cursor on until one of that name."""
    found = []
    call = stub.Events(pb.EventsRequest(after=after), timeout=WAIT_S)
    async for event in call:
        found.append(event)
        if event.name == last:
            break
    call.cancel()
    return found


@BOTH
def test_events_come_from_a_cursor_on_and_as_they_happen(tmp_path: Path, where: str) -> None:
    async def talk(served: Served, stub: Any) -> None:
        peers = await served.gather()
        before = await events(stub, 0, "round_opened")
        live = asyncio.create_task(events(stub, before[-1].cursor, "round_committed"))
        await served.finish_round(peers)
        after = await live
        cursors = [event.cursor for event in before + after]
        assert cursors == list(range(1, len(cursors) + 1))
        assert [event.name for event in before if event.name == "client_joined"] == ["client_joined"] * 3
        committed = json.loads(after[-1].fields_json)
        assert (committed["round"], committed["counted"], committed["not_counted"]) == (1, 3, {})
        again = await events(stub, 0, "round_committed")
        assert again == before + after
        assert all(event.unix_time > 1e9 for event in again)
        for _ in range(200):
            served.run.intake.note("said")
        served.run.intake.note("last")
        *_, before_last, last = await events(stub, 0, "last")
        assert await events(stub, before_last.cursor, "last") == [last]

    control(Home(tmp_path), where, talk)


def test_a_cursor_beyond_the_last_event_waits(tmp_path: Path) -> None:
    async def talk(served: Served, stub: Any) -> None:
        call = stub.Events(pb.EventsRequest(after=2**64 - 1), timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await stub.Status(pb.StatusRequest(), timeout=WAIT_S)

    control(Home(tmp_path), "socket", talk)


def test_clients_cannot_reach_the_operators_service_on_their_port(tmp_path: Path) -> None:
    async def both() -> None:
        async with asyncio.timeout(WAIT_S), Home(tmp_path).serve() as served:
            stub: Any = control_pb2_grpc.ControlStub(served.peer().channel)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await stub.Stop(pb.StopRequest(), timeout=WAIT_S)
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(both())
