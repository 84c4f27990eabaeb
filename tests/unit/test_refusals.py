"""Refusals that are written down: not every one of a client that asks again and again."""

from __future__ import annotations

from typing import Any

import pytest

from edgeflock.common.reason import Reason
from edgeflock.server.core.refusal import Refused
from edgeflock.server.service import refusals
from edgeflock.server.service.refusals import RefusalCount, to_wire
from edgeflock.v1 import aggregator_pb2 as pb

BUSY = Refused(Reason.BUSY, "later")


def test_the_1st_2nd_4th_and_8th_of_a_kind_are_written_down() -> None:
    told: list[tuple[str, Any]] = []
    count = RefusalCount(lambda name, **fields: told.append((name, fields["times"])))
    for _ in range(15):
        count.add("c0", BUSY)
    assert told == [("refused", 1), ("refused", 2), ("refused", 4), ("refused", 8)]


def test_every_client_and_every_reason_has_a_count_of_its_own() -> None:
    told: list[tuple[str, str]] = []
    count = RefusalCount(lambda name, **fields: told.append((fields["client"], fields["reason"])))
    for client, refused in (("c0", BUSY), ("c1", BUSY), ("c0", Refused(Reason.LATE, "too late"))):
        count.add(client, refused)
    assert told == [("c0", "REASON_BUSY"), ("c1", "REASON_BUSY"), ("c0", "REASON_LATE")]


def test_on_the_wire_a_refusal_says_whether_it_passes_by_itself_and_when_to_ask_again() -> None:
    busy = Refused(Reason.BUSY, "x" * 501, 100)
    expected = pb.Refusal(reason=pb.REASON_BUSY, sentence="x" * 500, temporary=True, retry_after_ms=100)
    assert to_wire(busy) == expected
    late = to_wire(Refused(Reason.LATE, "too late"))
    assert late == pb.Refusal(reason=pb.REASON_LATE, sentence="too late")


def test_of_a_crowd_of_strangers_not_everyone_has_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_MOST_NAMES", 3)
    told: list[str] = []
    count = RefusalCount(lambda name, **fields: told.append(fields["client"]))
    for number in range(5):
        count.add(f"c{number}" + "-" * 99, BUSY)
    assert (len(count.times), len(max(told, key=len))) == (4, 64)
    assert told[-2:] == ["others", "others"]
    assert count.times["others", Reason.BUSY] == 2
