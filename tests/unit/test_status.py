"""The status as a message: where the run is, and of every client what its session tells."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest

from edgeflock.common.reason import Reason
from edgeflock.server.core.decisions import Conduct, Ended, EndingKind
from edgeflock.server.core.phases import Phase
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.views import MemberStatus, RunState, RunStatus
from edgeflock.server.service.join import check_join, check_ready
from edgeflock.server.service.sessions import Session, Sessions
from edgeflock.server.service.status import status_of
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb
from support.tiny_run import describe, layouts

NOW = 5000.0
RUN = RunStatus(
    state=RunState.RUNNING, phase=Phase.OPEN, reason="why", round=4, committed=3, trained=3, rounds=9,
    clients=2, method="fedavg", over="", began=NOW - 7.5, deadline=NOW + 30.0, ending=None, members=(),
    budgets={"time": (5.0, 60.0)},
)  # fmt: skip


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: NOW)


class Asked:
    """An intake that answers with one status."""

    def __init__(self, run: RunStatus) -> None:
        self._run = run

    def status(self) -> RunStatus:
        return self._run


def status(run: RunStatus, sessions: Sessions | None = None) -> pb.StatusResponse:
    intake: Any = Asked(run)
    return status_of(intake, sessions or Sessions(TrafficBook()), "id", "/run")


def test_where_the_run_is() -> None:
    found = status(RUN)
    assert (found.run_id, found.run_dir, found.method, found.reason) == ("id", "/run", "fedavg", "why")
    assert (found.round, found.rounds, found.clients) == (3, 9, 2)
    assert found.state == aggregator_pb2.RUN_STATE_RUNNING
    assert [(one.name, one.used, one.limit) for one in found.budgets] == [("time", 5.0, 60.0)]
    assert found.open == pb.OpenRound(round=4, phase="open", elapsed_s=7.5, remaining_s=30.0)


@pytest.mark.parametrize("phase", Phase)
def test_a_round_is_at_hand_from_its_opening_to_its_commit(phase: Phase) -> None:
    at_hand = (Phase.OPENING, Phase.OPEN, Phase.FOLDING, Phase.COMMITTING)
    assert status(replace(RUN, phase=phase)).HasField("open") == (phase in at_hand)


def test_a_round_that_is_overdue_has_no_time_left_and_one_that_is_being_opened_has_not_begun() -> None:
    assert status(replace(RUN, deadline=NOW - 3.0)).open.remaining_s == 0.0
    opening = status(replace(RUN, phase=Phase.OPENING, began=None, deadline=None, over="enough")).open
    assert opening == pb.OpenRound(round=4, phase="opening", closing=True)


MEMBER = MemberStatus("a", online=True, seat=1, ready=True, samples=40, in_cohort=True)


def test_a_member_is_what_the_run_and_its_session_know_of_it() -> None:
    sessions = Sessions(TrafficBook())
    session = sessions.admit(Session("a", b"", "0.1", {"machine": "aarch64", "cores": 4, "newer": 1}))
    session.seen = NOW - 2.5
    session.fetching = (10, 90)
    session.progress = aggregator_pb2.Progress(
        round=4, steps_done=7, steps_total=5, cpu_s=1.5, temperature_c=61.0
    )
    conduct = Conduct(1, 3, 2, 8, "malformed")
    (found,) = status(replace(RUN, members=(replace(MEMBER, conduct=conduct, held=True),)), sessions).members
    assert (found.client_id, found.index, found.seated, found.online, found.ready) == (
        "a",
        1,
        True,
        True,
        True,
    )
    assert (found.samples, found.in_cohort, found.received, found.refused) == (40, True, False, False)
    assert (found.bad_updates, found.quarantine.until_round, found.quarantine.reason) == (3, 8, "malformed")
    assert (found.unseen_s, found.software) == (2.5, "0.1")
    assert found.device == aggregator_pb2.Device(machine="aarch64", cores=4)
    assert (found.steps_done, found.steps_total, found.cpu_s, found.temperature_c) == (5, 5, 1.5, 61.0)
    assert (found.download_sent, found.download_size) == (10, 90)


@pytest.mark.parametrize(
    ("run", "member", "progress"),
    [
        (replace(RUN, phase=Phase.FOLDING), MEMBER, {}),
        (RUN, replace(MEMBER, in_cohort=False), {}),
        (RUN, replace(MEMBER, received=True), {}),
        (RUN, MEMBER, {"round": 3}),
    ],
)
def test_work_is_told_of_who_is_at_it_in_the_open_round_alone(
    run: RunStatus, member: MemberStatus, progress: dict[str, Any]
) -> None:
    sessions = Sessions(TrafficBook())
    session = sessions.admit(Session("a", b"", "0.1", {}))
    said = {"round": 4, "steps_done": 2, "steps_total": 5, "temperature_c": 50.0, **progress}
    session.progress = aggregator_pb2.Progress(**said)
    (found,) = status(replace(run, members=(member,)), sessions).members
    assert (found.steps_total, found.HasField("temperature_c")) == (0, False)


def test_numbers_that_cannot_be_are_not_told() -> None:
    sessions = Sessions(TrafficBook())
    session = sessions.admit(Session("a", b"", "0.1", {}))
    session.progress = aggregator_pb2.Progress(round=4, cpu_s=math.inf, temperature_c=math.nan)
    session.seen = NOW + 1.0
    (found,) = status(replace(RUN, members=(MEMBER,)), sessions).members
    assert (found.cpu_s, found.HasField("temperature_c"), found.unseen_s) == (0.0, False, 0.0)


def test_who_waits_for_a_seat_and_who_was_never_heard_of_are_members_too() -> None:
    waiting = MemberStatus("b", online=True)
    (found,) = status(replace(RUN, members=(waiting,))).members
    assert found == pb.ClientStatus(client_id="b", online=True)


def test_a_run_that_is_over_has_its_reason() -> None:
    over = replace(RUN, state=RunState.FINISHED, phase=Phase.ENDED, ending=Ended(EndingKind.STOPPED, "x", 4))
    found = status(over)
    assert (found.state, found.HasField("open")) == (aggregator_pb2.RUN_STATE_FINISHED, False)


# ------------------------------------------------------------------------- who may join, and with what


def test_what_is_said_of_a_client_that_cannot_join_has_an_end() -> None:
    request = aggregator_pb2.JoinRequest(protocol=99, protocol_least=98, software="s" * 50, client_id="a")
    old = check_join(request, "0.1")
    assert old is not None
    assert old.reason is Reason.VERSION
    assert f"(edgeflock {'s' * 40})" in old.sentence
    assert "you speak revision 98 to 99 of edgeflock.v1" in old.sentence
    request = aggregator_pb2.JoinRequest(protocol=1, client_id="ä/" * 50)
    bad = check_join(request, "0.1")
    assert bad is not None
    shown = ("ä/" * 40).encode("unicode_escape").decode()
    assert bad.sentence.startswith(f"{shown!r} is no client id: allowed is ")


def test_classes_of_a_shard_must_be_the_models_and_add_up_to_its_samples() -> None:
    run = describe(layouts(), 2)

    def ready(counts: list[int]) -> aggregator_pb2.Ready:
        digest = layouts().parameters.digest
        return aggregator_pb2.Ready(samples=10, layout_digest=digest, class_counts=counts)

    for counts in (list[int](), [4, 6], [0, 10, 0], [0, 0, 0]):
        assert check_ready(ready(counts), run) is None
    for counts in ([4, 5], [1, 2, 3, 4], [10, 0, 1]):
        refused = check_ready(ready(counts), run)
        assert refused is not None
        assert refused.reason is Reason.MALFORMED
