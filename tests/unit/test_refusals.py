"""Refusals that are written down: not every one of a client that asks again and again."""

from __future__ import annotations

from typing import Any

from edgeflock.common.reason import Reason
from edgeflock.server.core.refusal import Refused
from edgeflock.server.service.refusals import RefusalCount

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
