"""Operators drop and replace devices, and servers are killed meanwhile: the same bits, by the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import processes
from support.operator import change
from support.processes import Flock

pytestmark = [pytest.mark.long, pytest.mark.promise("R1")]

RUN = ("--clients=4", "--seed=5", "--deadline=60", "--model=linear", "--method=scaffold", "--min-updates=3")
REST = ("c0", "c1", "c2")


def first_rounds(flock: Flock) -> None:
    server, rest, last = flock.server(*RUN, "--rounds=3"), flock.client(",".join(REST)), flock.client("c3")
    assert [server.ended(), rest.ended(), last.ended()] == [0, 0, 0]


def without_c3(folder: Path, *, kills: int) -> str:
    """Go on with five more rounds, drop c3 in the first of them; kill the server so often."""
    folder.mkdir()
    with processes.flock(folder) as flock:
        first_rounds(flock)
        server = flock.server("--rounds=8")
        server.wait_for("round_opened")  # nobody is there to deliver
        assert change(flock, drop="c3") == ""
        if kills:
            server.kill()
            server = flock.server()
        clients = flock.client(",".join(REST))
        for _ in range(1, kills):
            server.wait_for("round_committed", count=1)
            server.kill()
            server = flock.server()
        assert [server.ended(), clients.ended()] == [0, 0]
        gone = flock.rows("SELECT round, verdict FROM outcomes WHERE seat = 3 AND round > 3")
        assert gone == [(4, "discarded")]
        assert set(flock.verdicts("c0").values()) == {"counted"}
        return flock.sha256()


def test_a_run_with_a_drop_that_is_killed_equals_the_one_that_is_not(tmp_path: Path) -> None:
    calm = without_c3(tmp_path / "calm", kills=0)
    assert without_c3(tmp_path / "killed", kills=3) == calm


def test_a_device_that_takes_the_place_of_a_dead_one_begins_afresh_and_says_so(flock: Flock) -> None:
    first_rounds(flock)
    server = flock.server("--rounds=6", "--min-updates=4")
    server.wait_for("round_opened")
    assert change(flock, replace={"client_id": "c3", "by": "new3"}) == ""
    late = flock.client("c3")
    old, new = flock.client(",".join(REST)), flock.client("new3")
    assert [server.ended(), old.ended(), new.ended(), late.ended()] == [0, 0, 0, 0]
    assert new.events("state_lost")
    assert [one["sentence"] for one in flock.announced("refused") if one["client"] == "c3"]
    counted = flock.rows("SELECT round FROM outcomes WHERE seat = 3 AND verdict = 'counted' ORDER BY round")
    assert [number for (number,) in counted] == [1, 2, 3, 4, 5, 6]
    assert [line["lost_states"] for line in server.events("round_committed") if "lost_states" in line] == [
        1.0
    ]
