"""Budgets end real runs, over several lives of the server, and may be raised."""

from __future__ import annotations

from pathlib import Path

from support.processes import flock

FLAGS = ("--clients=2", "--model=linear", "--rounds=400", "--eval-every=0")
ROUND_BYTES = 2 * 2 * 650 * 4  # two clients, both ways, digits' linear model


def test_bytes_are_never_exceeded_and_a_higher_budget_goes_on(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        server = made.server(*FLAGS, f"--budget=bytes={3 * ROUND_BYTES + 5}")
        clients = [made.client("c0"), made.client("c1")]
        assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
        (ended,) = made.announced("run_ended")
        assert ended["kind"] == "completed"
        assert ended["reason"].startswith(
            "the budget of bytes leaves no room for another round: 31200 of 31205"
        )
        assert made.rows("SELECT sum(bytes_up) + sum(bytes_down) FROM costs") == [(3 * ROUND_BYTES,)]
        again = made.begin_server()
        assert again.ended() == 0
        assert again.events("run_is_over")
        server = made.server(f"--budget=bytes={4 * ROUND_BYTES}")
        clients = [made.client("c0"), made.client("c1")]
        assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
        assert made.announced("run_ended")[-1]["round"] == 4
        assert made.announced("round_committed")[-1]["budget"] == {
            "bytes": [4 * ROUND_BYTES, 4 * ROUND_BYTES]
        }


def test_time_and_cpu_are_summed_over_the_lives_of_the_server(tmp_path: Path) -> None:
    """What the journal says was used goes on growing after a kill, and ends the run."""
    with flock(tmp_path) as made:
        server = made.server(*FLAGS, "--budget=time=1200ms", "--budget=cpu=1h")
        clients = [made.client("c0"), made.client("c1")]
        server.wait_for("round_committed", count=8)
        server.kill()
        first = [line["budget"] for line in made.announced("round_committed")]
        server = made.server()
        assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
        found = [line["budget"] for line in made.announced("round_committed")]
        for name in ("time", "cpu"):
            used = [line[name][0] for line in found]
            assert used == sorted(used)
            assert used[len(first)] > used[len(first) - 1] > 0
        (ended,) = made.announced("run_ended")
        assert ended["reason"].startswith("the budget of time is used up: ")
        assert found[-1]["time"][0] >= 1.2 > found[-2]["time"][0]
