"""Either end dies while the closing task is open: the run ends in the same bits, and with the same scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import processes, spool_logs
from support.processes import Flock

ROUNDS = 3
RUN = (
    "--method=fedadm", "--set=tau=fixed:2", "--clients=3", f"--rounds={ROUNDS}", "--seed=7",
    "--partition=dirichlet:0.5", "--deadline=60", "--eval-clients=both",
)  # fmt: skip
SCORES = (
    f"SELECT seat, model, samples, value, loss FROM client_scores WHERE round = {ROUNDS + 1} ORDER BY 1, 2"
)
Left = tuple[str, list[tuple[object, ...]]]


def without_c2(folder: Path, upto: int = 50) -> tuple[str, ...]:
    """Flags of the run whose rounds of training do without c2, up to that one: what follows waits for it."""
    script = folder / "cohorts"
    script.write_text("c0 c1\n" * upto + "c0 c1 c2\n" * (50 - upto), "utf-8")
    return (*RUN, f"--cohort-script={script}")


def in_one_go(folder: Path, without: int, *flags: str) -> str:
    """Run undisturbed, c2 being in no round up to that one; return the hash of the final model."""
    folder.mkdir()
    return processes.run_to_the_end(folder, (*without_c2(folder, without), *flags), ("c0,c1,c2",))


def left(flock: Flock) -> Left:
    return flock.sha256(), flock.rows(SCORES)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    folder = tmp_path_factory.mktemp("undisturbed")
    with processes.flock(folder) as flock:
        server = flock.server(*without_c2(folder))
        client = flock.client("c0,c1,c2")
        assert [server.ended(), client.ended()] == [0, 0]
        return left(flock)


def wait_for_c2(flock: Flock, *flags: str, opened: str = "last_round_opened") -> None:
    """Play until the round after ROUNDS has everything but c2's part, who went after it had got its seat."""
    server = flock.server(*flags)
    absent = flock.client("c2")
    others = flock.client("c0,c1")
    server.wait_for("round_opened")
    absent.kill()
    server.wait_for(opened, round=ROUNDS + 1)

    def answered() -> bool | None:
        return all(spool_logs.sent(flock.run_dir, ROUNDS + 1, seat) for seat in (0, 1)) or None

    processes.until(answered, lambda: server.text[-2000:])
    assert not others.events("update_settled", round=ROUNDS + 1)


def test_a_server_killed_in_the_closing_round_goes_on_with_the_answers_it_had(
    flock: Flock, undisturbed: Left
) -> None:
    wait_for_c2(flock, *without_c2(flock.folder))
    server, _, others = flock.programs[:3]
    server.kill()
    server = flock.server()
    server.wait_for("last_round_opened")
    late = flock.client("c2")
    assert [server.ended(), others.ended(), late.ended()] == [0, 0, 0]
    assert left(flock) == undisturbed
    assert flock.verdicts("c2") == {ROUNDS + 1: "counted"}
    assert flock.announced("run_ended")[-1]["round"] == ROUNDS


def test_a_client_killed_after_its_answer_hears_that_it_counted(flock: Flock, undisturbed: Left) -> None:
    wait_for_c2(flock, *without_c2(flock.folder))
    server, _, others = flock.programs[:3]
    others.kill()
    back, late = flock.client("c0,c1"), flock.client("c2")
    assert [server.ended(), back.ended(), late.ended()] == [0, 0, 0]
    assert left(flock) == undisturbed
    settled = back.events("update_settled", round=ROUNDS + 1, counted=True)
    assert sorted(entry["client_id"] for entry in settled) == ["c0", "c1"]


def test_with_more_rounds_a_killed_servers_clients_drop_their_answers_and_train(flock: Flock) -> None:
    """The closing round was open and gives its number to a round of training."""
    expected = in_one_go(flock.folder / "at once", 50, f"--rounds={ROUNDS + 2}")
    wait_for_c2(flock, *without_c2(flock.folder))
    server, _, others = flock.programs[:3]
    server.kill()
    server = flock.server(f"--rounds={ROUNDS + 2}")
    late = flock.client("c2")
    assert [server.ended(), others.ended(), late.ended()] == [0, 0, 0]
    assert left(flock)[0] == expected
    assert {tuple(row) for row in flock.rows("SELECT DISTINCT epoch FROM outcomes")} == {(0,), (1,)}


def test_with_fewer_rounds_a_killed_servers_clients_drop_their_updates_and_answer(
    flock: Flock, undisturbed: Left
) -> None:
    """A round of training was open and gives its number to the closing round."""
    wait_for_c2(flock, *without_c2(flock.folder, ROUNDS), "--rounds=9", opened="round_opened")
    server, _, others = flock.programs[:3]
    server.kill()
    server = flock.server(f"--rounds={ROUNDS}")
    late = flock.client("c2")
    assert [server.ended(), others.ended(), late.ended()] == [0, 0, 0]
    assert left(flock) == undisturbed


def test_without_c2_the_run_ends_at_the_deadline(flock: Flock, undisturbed: Left) -> None:
    wait_for_c2(flock, *without_c2(flock.folder), "--deadline=2")
    server, _, others = flock.programs[:3]
    assert [server.ended(), others.ended()] == [0, 0]
    assert flock.verdicts("c2") == {ROUNDS + 1: "late"}
    assert flock.rows(SCORES) == [row for row in undisturbed[1] if row[0] != 2]


def test_a_finished_run_goes_on_with_more_rounds_to_the_bits_of_one_that_had_them_at_once(
    flock: Flock,
) -> None:
    more = ROUNDS + 2
    expected = in_one_go(flock.folder / "at once", 0, f"--rounds={more}")
    for flags in (RUN, (f"--rounds={more}",), ()):
        server = flock.begin_server(*flags)
        if flags:
            server.wait_for("listening")
            assert flock.client("c0,c1,c2").ended() == 0
        assert server.ended() == 0
    assert flock.sha256() == expected
    assert [event["round"] for event in flock.announced("run_ended")] == [ROUNDS, more]
