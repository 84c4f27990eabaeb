"""The moment in one line: what it says, and how it gives way to a narrow terminal."""

from __future__ import annotations

import pytest

from edgeflock.common.command.terminal import length, text_of
from edgeflock.server.console import live
from edgeflock.server.console.live import Moment
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb


def member(name: str, **said: object) -> pb.ClientStatus:
    fields = {"online": True, "seated": True, "ready": True, "in_cohort": True, **said}
    return pb.ClientStatus(client_id=name, **fields)  # type: ignore[arg-type]


def opened(*members: pb.ClientStatus, **said: object) -> pb.StatusResponse:
    at_hand = pb.OpenRound(round=7, phase="open", elapsed_s=12.0, remaining_s=48.0)
    return pb.StatusResponse(
        state=aggregator_pb2.RUN_STATE_RUNNING,
        round=6,
        rounds=20,
        clients=len(members),
        members=members,
        open=at_hand,
        **said,  # type: ignore[arg-type]
    )


def gathering(*members: pb.ClientStatus) -> pb.StatusResponse:
    return pb.StatusResponse(state=aggregator_pb2.RUN_STATE_GATHERING, rounds=20, clients=4, members=members)


def told(status: pb.StatusResponse, width: int | None = None, **more: object) -> str:
    return text_of(live.line(Moment(status, 12.0, **more), width))  # type: ignore[arg-type]


def test_it_says_who_is_missing_and_what_to_type() -> None:
    there = member("a", seated=False, ready=False, in_cohort=False)
    assert told(gathering(there), start="fl-client --server 127.0.0.1:9300") == (
        "waiting for clients: 1 of 4  12 s  start: fl-client --server 127.0.0.1:9300"
    )


def test_whoever_has_a_seat_is_missed_by_name() -> None:
    status = gathering(member("a"), member("b", online=False), member("c"), member("d"))
    assert told(status) == "waiting for clients: 3 of 4  12 s  missing b"


def test_it_says_who_trains_and_how_much_has_crossed_the_wire() -> None:
    status = opened(
        member("c0", received=True),
        member("c1", upload_held=25, upload_size=100),
        member("c2", download_sent=55, download_size=100),
        member("c3"),
    )
    assert told(status) == "round  7/20  12 s  updates 1 of 4  transfers 40%  training c2, c3"


def test_who_is_away_is_said_before_who_trains() -> None:
    status = opened(member("c0", online=False), member("c1"))
    assert told(status) == "round  7/20  12 s  updates 0 of 2  away c0  training c1"


def test_budgets_and_the_course_of_the_accuracy_stand_at_the_end() -> None:
    status = opened(member("c0"), budgets=[pb.BudgetShare(name="time", used=30.0, limit=60.0)])
    assert told(status, values=[0.1, 0.5]).endswith("training c0  budget time 50%  ▁█ 0.5000")
    assert told(status, values=[0.1, 0.5], unicode=False).endswith("budget time 50%  0.5000")


@pytest.mark.parametrize("width", [40, 59, 79, 199])
@pytest.mark.parametrize("clients", [1, 4, 20, 1000])
def test_it_fits_however_many_there_are(width: int, clients: int) -> None:
    members = [member(f"client-{number:08x}") for number in range(clients)]
    budgets = [pb.BudgetShare(name=name, used=1.0, limit=3.0) for name in ("time", "bytes", "energy")]
    status = opened(*members, budgets=budgets)
    line = live.line(Moment(status, 12.0, [0.25] * 50), width)
    assert length(line) <= width
    assert text_of(line).startswith("round  7/20  12 s")
    assert f"0 of {clients}" in text_of(line) or f"0/{clients}" in text_of(line)


def test_many_are_counted_where_they_cannot_be_named() -> None:
    status = opened(*(member(f"c{number}") for number in range(20)))
    assert told(status, 79).endswith("updates 0 of 20  training c0, c1, c2, c3 and 16 more")
    assert told(status, 59).endswith("training c0 and 19 more")


def test_the_closing_round_is_none_of_the_rounds() -> None:
    status = opened(member("c0"))
    status.open.round, status.open.closing, status.rounds = 21, True, 20
    assert told(status).startswith("closing      12 s")


def test_a_pause_is_told_with_its_reason() -> None:
    status = opened(member("c0"))
    status.state, status.reason = aggregator_pb2.RUN_STATE_PAUSED, "the disk is full"
    assert told(status) == "paused: the disk is full"


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "0 s"), (59.9, "59 s"), (83, "1:23 min"), (7500, "2:05 h")]
)
def test_seconds_are_written_for_people(value: float, text: str) -> None:
    assert live.seconds(value) == text
