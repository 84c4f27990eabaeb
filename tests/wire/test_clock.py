"""The simulated clock in real runs: every method stops at the same budget, whatever happens to its server."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeflock.server.costs.clock import parse
from support.processes import flock

LIMIT_S = 3.0
FLAGS = ("--clock=simulated", f"--budget=time={LIMIT_S}s", "--steps=10", "--model=linear", "--rounds=500")


@pytest.mark.parametrize("method", ["fedprox", "centralized"])
def test_a_run_ends_before_the_round_that_would_go_beyond_its_simulated_time(
    method: str, tmp_path: Path
) -> None:
    """The seconds are those of seed and round, also of a server that was killed and has come back."""
    clock = parse("simulated", central=method == "centralized")
    assert clock is not None
    with flock(tmp_path) as made:
        server = made.server(f"--method={method}", *FLAGS, "--clients=2", "--eval-every=0", "--seed=4")
        clients = made.clients("c0,c1") if method == "fedprox" else []
        server.wait_for("round_committed", count=2)
        server.kill()
        assert [end.ended() for end in (made.server(), *clients)] == [0] * (1 + len(clients))
        found = dict(made.rows("SELECT round, value FROM round_costs WHERE name = 'simulated_s'"))
        (ended,) = made.announced("run_ended")
        (used,) = made.rows("SELECT value FROM meta WHERE name = 'own_time'")
        lines = made.announced("round_committed")
    drawn = {number: sum(clock.drawn(4, number, 10)) for number in range(1, len(found) + 2)}
    assert found == pytest.approx({number: drawn[number] for number in found})
    assert float(used[0]) == pytest.approx(sum(found.values()))
    assert sum(found.values()) <= LIMIT_S < sum(drawn.values())
    assert lines[-1]["budget"]["time"] == pytest.approx([sum(found.values()), LIMIT_S])
    assert "the budget of time leaves no room for another round" in ended["reason"]
