"""Clients that are late, absent, without data or out of their minds; cohorts of every kind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from support.processes import Flock, until


def awaited(flock: Flock, client_id: str, verdict: str, after: int = 0) -> int:
    """Wait until a round after that one gave this client that verdict; return the round."""

    def look() -> int | None:
        found = [r for r, v in flock.verdicts(client_id).items() if v == verdict and r > after]
        return min(found, default=None)

    return until(look, lambda: f"{verdict} for {client_id}: {flock.verdicts(client_id)}")


def test_a_round_closes_at_its_deadline_and_the_late_one_comes_back(flock: Flock) -> None:
    server = flock.server("--clients=3", "--rounds=100000", "--deadline=1", "--min-updates=2")
    prompt, slow = flock.client("c0,c1"), flock.client("c2")
    counted = awaited(flock, "c2", "counted")
    slow.signal(signal.SIGSTOP)
    late = awaited(flock, "c2", "late", after=counted)
    assert {flock.verdicts("c0")[late], flock.verdicts("c1")[late]} == {"counted"}
    slow.signal(signal.SIGCONT)
    awaited(flock, "c2", "counted", after=late)
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    assert [prompt.process.is_alive(), slow.process.is_alive()] == [True, True]
    for client in (prompt, slow):
        client.signal(signal.SIGTERM)
    assert [prompt.ended(), slow.ended()] == [0, 0]


@pytest.mark.promise("R5")
def test_one_dead_of_eight_costs_its_grace_once_no_deadline_and_takes_part_again(flock: Flock) -> None:
    flags = ("--clients=8", "--rounds=100000", "--grace=1", "--model=linear", "--eval-every=0")
    server = flock.server(*flags)  # with the default deadline each of these rounds would last 10 min
    others, victim = flock.client("c0,c1,c2,c3,c4,c5,c6"), flock.client("c7")
    counted = awaited(flock, "c7", "counted")
    victim.kill()
    late = awaited(flock, "c7", "late", after=counted)
    server.wait_for("round_committed", round=late + 20)
    told = flock.verdicts("c7")
    assert {told[number] for number in range(late, late + 21)} == {"late"}
    assert [event["clients"] for event in flock.announced("clients_missed")] == [["c7"]]
    again = flock.client("c7")
    awaited(flock, "c7", "counted", after=late)
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    for client in (others, again):
        client.signal(signal.SIGTERM)
    assert [others.ended(), again.ended()] == [0, 0]


def test_too_few_updates_pause_the_run_and_say_who_is_missing(flock: Flock) -> None:
    server = flock.server("--clients=2", "--rounds=30", "--deadline=500ms", "--min-updates=2")
    first, second = flock.client("c0"), flock.client("c1")
    server.wait_for("round_committed")
    second.signal(signal.SIGSTOP)
    reason = server.wait_for("run_paused")["reason"]
    assert reason.endswith("1 of at least 2 updates; missing: c1")
    second.signal(signal.SIGCONT)
    assert [server.ended(), first.ended(), second.ended()] == [0, 0, 0]


def test_with_one_member_too_many_nobody_waits_for_the_slowest(flock: Flock) -> None:
    """Over-selection: a stopped client costs no deadline, as long as the others are enough."""
    server = flock.server("--clients=3", "--rounds=20", "--cohort=2", "--over-select=1", "--linger=500ms")
    prompt, slow = flock.client("c0,c1"), flock.client("c2")
    server.wait_for("round_committed")
    slow.signal(signal.SIGSTOP)
    assert [server.ended(), prompt.ended()] == [0, 0]
    assert flock.verdicts("c2")[20] == "late"
    assert {flock.verdicts("c0")[20], flock.verdicts("c1")[20]} == {"counted"}


def test_an_update_that_is_not_finite_is_named_and_the_others_count(flock: Flock, tmp_path: Path) -> None:
    """Finite data as large as a float can be: the gradient is not finite."""
    x = np.full((16, 1, 8, 8), 3e38, np.float32)
    np.savez(tmp_path / "huge.npz", x=x, y=np.arange(16) % 10)
    server = flock.server("--clients=3", "--rounds=3", "--min-updates=2")
    sane, mad = flock.client("c0,c1"), flock.client("c2", f"--data={tmp_path / 'huge.npz'}")
    assert [server.ended(), sane.ended(), mad.ended()] == [0, 0, 0]
    assert flock.verdicts("c2") == {1: "non_finite", 2: "non_finite", 3: "non_finite"}
    assert set(flock.verdicts("c0").values()) == {"counted"}
    assert len(server.events("updates_rejected", clients={"c2": "non_finite"})) == 3
    assert len(mad.events("update_settled", counted=False)) == 3


def test_a_run_fails_with_its_reason_when_no_update_is_finite(flock: Flock) -> None:
    server, client = flock.server("--clients=2", "--rounds=3", "--lr=1e38"), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [1, 1]
    (ending,) = flock.announced("run_ended")
    assert ending["kind"] == "failed"
    assert "non_finite" in ending["reason"]
    assert not (flock.run_dir / "model.safetensors").exists()
    assert list(flock.run_dir.glob("rounds/*/model.safetensors"))  # the last good one is kept


def test_a_failed_run_goes_on_with_fewer_updates_and_both_ends_agree(flock: Flock, tmp_path: Path) -> None:
    """Everybody was told that round 1 is discarded; it is held again, in a new epoch."""
    x = np.full((16, 1, 8, 8), 3e38, np.float32)
    np.savez(tmp_path / "huge.npz", x=x, y=np.arange(16) % 10)
    server = flock.server("--clients=2", "--rounds=2", "--min-updates=2")
    sane, mad = flock.client("c0"), flock.client("c1", f"--data={tmp_path / 'huge.npz'}")
    assert [server.ended(), sane.ended(), mad.ended()] == [1, 1, 1]
    server = flock.server("--min-updates=1")
    sane, mad = flock.client("c0"), flock.client("c1", f"--data={tmp_path / 'huge.npz'}")
    assert [server.ended(), sane.ended(), mad.ended()] == [0, 0, 0]
    told = flock.rows("SELECT epoch, round, seat, verdict FROM outcomes ORDER BY epoch, round, seat")
    assert told == [
        (0, 1, 0, "discarded"), (0, 1, 1, "non_finite"),
        (1, 1, 0, "counted"), (1, 1, 1, "non_finite"),
        (1, 2, 0, "counted"), (1, 2, 1, "non_finite"),
    ]  # fmt: skip
    assert [line["counted"] for line in sane.events("update_settled")] == [True, True]


def test_a_client_whose_shard_is_empty_takes_part_with_weight_0(flock: Flock) -> None:
    flags = ("--clients=12", "--rounds=2", "--partition=dirichlet:0.001", "--min-updates=12")
    server = flock.server(*flags)
    client = flock.client(",".join(f"c{number}" for number in range(12)))
    assert [server.ended(), client.ended()] == [0, 0]
    samples = dict(flock.rows("SELECT client_id, samples FROM seats"))
    empty = [client_id for client_id, count in samples.items() if count == 0]
    assert empty  # twelve clients, ten classes, each class with one client
    assert {verdict for name in empty for verdict in flock.verdicts(name).values()} == {"counted"}
    assert not server.events("updates_rejected")


def test_a_cohort_script_says_who_takes_part(flock: Flock, tmp_path: Path) -> None:
    script = [["c2"], ["c0", "c1"], ["c1", "c2"], ["c0"]]
    (tmp_path / "cohorts").write_text("".join(" ".join(line) + "\n" for line in script))
    flags = ("--clients=3", "--rounds=4", f"--cohort-script={tmp_path / 'cohorts'}")
    server, client = flock.server(*flags), flock.client("c0,c1,c2")
    assert [server.ended(), client.ended()] == [0, 0]
    rows = flock.rows("SELECT cohort FROM rounds WHERE round > 0 ORDER BY round")
    assert [[f"c{index}" for index in json.loads(cohort)] for (cohort,) in rows] == script


def test_a_cohort_script_with_a_stranger_ends_the_run(flock: Flock, tmp_path: Path) -> None:
    (tmp_path / "cohorts").write_text("c0\nc7\n")
    flags = ("--clients=2", "--rounds=2", f"--cohort-script={tmp_path / 'cohorts'}")
    server, client = flock.server(*flags), flock.client("c0,c1")
    assert server.ended() == 1
    (ending,) = flock.announced("run_ended")
    assert ending["reason"] == "--cohort-script names 'c7', who has no seat; seated are c0, c1"
    assert client.ended() == 1


def test_online_mode_draws_from_those_who_are_there(flock: Flock) -> None:
    """Two of four places are enough to begin; one client goes, another comes, the run goes on."""
    flags = ("--participation=online", "--clients=4", "--cohort=2", "--rounds=100000", "--deadline=1")
    server = flock.server(*flags)
    first, second = flock.client("c0"), flock.client("c1")
    awaited(flock, "c1", "counted")
    second.signal(signal.SIGTERM)
    assert second.ended() == 0
    third = flock.client("c2")
    awaited(flock, "c2", "counted")
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    for client in (first, third):
        client.signal(signal.SIGTERM)
    assert [first.ended(), third.ended()] == [0, 0]
    seats = dict(flock.rows("SELECT client_id, seat FROM seats"))  # the first two came in any order
    assert {seats["c0"], seats["c1"]} == {0, 1}
    assert seats["c2"] == 2


def test_a_roster_that_stays_short_ends_the_run(flock: Flock) -> None:
    server = flock.server("--clients=3", "--max-clients-wait=1s")
    client = flock.client("c0,c1")
    assert server.ended() == 1
    (ending,) = flock.announced("run_ended")
    assert ending["reason"] == "2 of 3 clients came within 1 s"
    assert client.ended() == 1
