"""Budgets and targets end real runs, in mid-round too, over all lives of the server, and may be raised."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from edgeflock.common.sensors import Sensors
from faults.conftest import Figure
from support.fault import Fault, Kind
from support.processes import LIMIT_S, Flock, flock, until
from support.proxy import Proxy
from support.strace import Tracer, needs_strace

pytestmark = pytest.mark.alone  # seconds, of CPU too, are what is limited here

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
        server = made.server(*FLAGS, "--budget=time=2500ms", "--budget=cpu=1h")
        clients = [made.client("c0"), made.client("c1")]
        server.wait_for("round_committed", count=3)
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
        assert ended["budget"]["time"][0] >= 2.5 > found[-2]["time"][0]


# --------------------------------------------------------------------------------- in mid-round

SMALL_CHUNK = 256 * 1024
WIDE = ("--model=mlp", "--model-arg=hidden=[1024,256]", "--steps=0", "--eval-every=0", "--min-updates=1")
WIDE_BYTES = 4 * (64 * 1024 + 1024 + 1024 * 256 + 256 + 256 * 10 + 10)
ENDLESS = ("--model=linear", "--epochs=1000000", "--eval-every=0", "--rounds=3")


def the_end(made: Flock) -> dict[str, object]:
    (ended,) = made.announced("run_ended")
    assert ended["kind"] == "completed"
    return ended


def used(made: Flock, name: str) -> float:
    """What the journal says was used up to the end."""
    ((value,),) = made.rows(f"SELECT value FROM meta WHERE name = 'used_{name}'")
    return float(value)


@pytest.mark.promise("R15")
def test_time_that_ends_in_mid_step_stops_the_devices_and_discards_the_round(
    flock: Flock, figure: Figure
) -> None:
    server = flock.server("--clients=2", *ENDLESS, "--budget=time=1500ms")
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    ended = the_end(flock)
    assert str(ended["reason"]).startswith("the budget of time is used up: 1.5")
    assert (ended["round"], set(flock.verdicts("c0").values())) == (0, {"discarded"})
    assert flock.announced("round_discarded") == [{"round": 1, "reason": ended["reason"]}]
    figure("seconds beyond a budget of time", over := used(flock, "time") - 1.5)
    assert 0 <= over < 0.5


@pytest.mark.promise("R15")
def test_time_that_ends_in_mid_upload_counts_what_is_there(flock: Flock, figure: Figure) -> None:
    server = flock.server("--clients=2", *WIDE, "--rounds=3", "--budget=time=2s")
    with Proxy(lambda: flock.address, ((Fault(Kind.FREEZE, "up", 400_000),),)) as proxy:
        clients = [flock.client("c0"), flock.client("c1", f"--server={proxy.address}")]
        assert server.ended() == 0
        assert clients[0].ended() == 0
    assert (flock.verdicts("c0"), flock.verdicts("c1")) == ({1: "counted"}, {1: "late"})
    (cut,) = flock.announced("round_cut")
    assert (cut["round"], cut["counted"], cut["reason"]) == (1, ["c0"], the_end(flock)["reason"])
    figure("seconds beyond a budget of time", over := used(flock, "time") - 2.0)
    assert 0 <= over < 0.5


@pytest.mark.promise("R15")
@pytest.mark.parametrize(("where", "passes"), [("download", 500_000), ("upload", 8_000)])
def test_bytes_that_nobody_foresaw_end_the_round_within_a_chunk(
    flock: Flock, figure: Figure, where: str, passes: int
) -> None:
    """A device that has lost all it had fetches once more: of a budget for one round too much."""
    limit = 4 * WIDE_BYTES + 5
    server = flock.server("--clients=2", *WIDE, "--rounds=3", f"--budget=bytes={limit}")
    with Proxy(lambda: flock.address, ((Fault(Kind.FREEZE, "up", passes),),)) as proxy:
        clients = [flock.client("c0"), flock.client("c1", f"--server={proxy.address}")]
        sent = 3 * WIDE_BYTES + (SMALL_CHUNK if where == "download" else 0)
        query = "SELECT value FROM meta WHERE name = 'used_bytes'"
        until(
            lambda: [row for row in flock.rows(query) if float(row[0]) >= sent] or None, lambda: server.text
        )
        clients[1].kill()
    server.wait_for("client_left", client="c1")
    shutil.rmtree(flock.folder / "clients" / "c1")
    clients[1] = flock.client("c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    assert str(the_end(flock)["reason"]).startswith("the budget of bytes is used up: ")
    assert (flock.verdicts("c0"), flock.verdicts("c1")) == ({1: "counted"}, {1: "late"})
    figure("bytes beyond a budget of bytes", over := used(flock, "bytes") - limit)
    assert over <= (0 if where == "download" else SMALL_CHUNK)


@pytest.mark.promise("R15")
def test_devices_stop_at_their_allowance_of_cpu_time_and_what_they_did_counts(
    flock: Flock, figure: Figure
) -> None:
    limit = 6.0
    server = flock.server("--clients=2", *ENDLESS, f"--budget=cpu={limit}s")
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    ended = the_end(flock)
    assert ended["round"] == 1
    assert str(ended["reason"]).startswith("the budget of cpu ")
    assert flock.verdicts("c0") == flock.verdicts("c1") == {1: "counted"}
    for cpu_s, steps in flock.rows("SELECT cpu_s, steps FROM costs"):
        assert steps > 0
        figure("CPU seconds beyond a client's allowance", over := cpu_s - limit / 3)
        assert over < 0.5
    assert sum(cpu_s for (cpu_s,) in flock.rows("SELECT cpu_s FROM costs")) > limit / 2
    figure("CPU seconds beyond a budget of CPU", used(flock, "cpu") - limit)
    assert used(flock, "cpu") < limit + 0.5


@pytest.mark.skipif(bool(Sensors().source), reason="this machine has a sensor: its joules cannot be foreseen")
@pytest.mark.promise("R15")
def test_devices_stop_at_their_allowance_of_energy(flock: Flock, figure: Figure) -> None:
    """Two devices of 100 W, by what their operators say, work for two seconds each."""
    server = flock.server("--clients=2", *ENDLESS, "--budget=energy=0.4kJ")
    clients = [flock.client(name, "--watts=100") for name in ("c0", "c1")]
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    assert (the_end(flock)["round"], flock.verdicts("c1")) == (1, {1: "counted"})
    assert str(the_end(flock)["reason"]).startswith("the budget of energy ")
    for energy_j, train_s in flock.rows("SELECT energy_j, train_s FROM costs"):
        assert train_s > 1
        figure("joules beyond a device's allowance", over := energy_j - 200.0)
        assert over < 50
    assert 300 < used(flock, "energy") < 500


@pytest.mark.skipif(bool(Sensors().source), reason="this machine has a sensor: its joules are known")
def test_a_budget_of_energy_that_nobody_measures_says_so_once(flock: Flock) -> None:
    server = flock.server("--clients=2", "--model=linear", "--rounds=3", "--budget=energy=1J")
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    assert the_end(flock)["reason"] == "all 3 rounds are done"
    (said,) = flock.announced("budget_unmeasured")
    assert said["round"] == 1


@pytest.mark.promise("R15")
def test_a_budget_that_is_raised_goes_on_and_the_discarded_round_is_held_again(flock: Flock) -> None:
    flags = ("--clients=2", "--model=linear", "--rounds=3")
    server = flock.server(*flags, "--budget=time=1ms")
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    assert (the_end(flock)["round"], flock.verdicts("c1")) == (0, {1: "discarded"})
    server = flock.server("--budget=time=1h")
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    assert flock.announced("run_ended")[-1]["reason"] == "all 3 rounds are done"
    assert flock.rows("SELECT count(*) FROM outcomes WHERE verdict = 'counted'") == [(6,)]


# --------------------------------------------------------------------------------- kill -9


@needs_strace
@pytest.mark.promise("R15")
@pytest.mark.parametrize("raised", [False, True])
def test_a_server_killed_between_the_decision_and_the_commit_keeps_to_it(flock: Flock, raised: bool) -> None:
    """It dies when it renames the checkpoint of the round that it has cut short."""
    gate = flock.folder / "gate"
    server = flock.begin_server("--clients=2", *WIDE, "--rounds=3", "--budget=time=2s", gate=gate)
    place = flock.run_dir / "rounds" / ".tmp-000001"
    tracer = Tracer(server, gate, "rename,renameat,renameat2", "signal=KILL:when=1", (place,))
    server.wait_for("listening")
    idle = Proxy(lambda: flock.address, ((Fault(Kind.FREEZE, "up", 400_000),),))
    with idle as proxy:
        clients = [flock.client("c0"), flock.client("c1", f"--server={proxy.address}")]
        server.process.join(LIMIT_S)
        tracer.close()
        assert server.process.exitcode == -signal.SIGKILL
        assert flock.rows("SELECT counted, committed FROM rounds WHERE round = 1") == [("[0]", 0)]
        assert flock.rows("SELECT 1 FROM meta WHERE name = 'limit'") == [(1,)]
        clients[1].kill()
    server = flock.server(*(["--budget=time=1h"] if raised else []))
    clients[1] = flock.client("c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    after = {2: "counted", 3: "counted"} if raised else {}
    assert flock.verdicts("c0") == {1: "counted"} | after
    assert flock.verdicts("c1") == {1: "late"} | after
    begins = "all 3 rounds are done" if raised else "the budget of time is used up: "
    assert str(the_end(flock)["reason"]).startswith(begins)


# --------------------------------------------------------------------------------- targets

TARGET = ("--clients=2", "--model=linear", "--seed=3", "--rounds=60", "--target=accuracy=0.8")


def check_target(made: Flock) -> str:
    """Check that the first round with the target's accuracy is the last; return the final model's hash."""
    rows = made.rows("SELECT round, value FROM evaluations ORDER BY round")
    *before, (last, accuracy) = rows
    assert accuracy >= 0.8 > max(found for _, found in before)
    ended = the_end(made)
    assert (ended["round"], ended["reason"]) == (
        last,
        f"the target is reached: accuracy {accuracy:.4f} of 0.8 in round {last}",
    )
    assert made.rows("SELECT max(round) FROM rounds WHERE committed = 1") == [(last,)]
    counted = made.rows("SELECT round, verdict FROM outcomes WHERE verdict = 'counted'")
    assert max(round for round, _ in counted) == last
    assert {word for round, word in made.verdicts("c0").items() if round > last} <= {"discarded"}
    return made.sha256()


def test_the_first_round_with_the_target_s_accuracy_is_the_last(flock: Flock) -> None:
    """The round after it is open by then and counts no more; a higher target goes on."""
    server = flock.server(*TARGET)
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    check_target(flock)
    again = flock.begin_server()
    assert again.ended() == 0
    assert again.events("run_is_over")
    server = flock.server("--target=accuracy=0.9")
    clients = flock.clients("c0", "c1")
    assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
    assert " of 0.9 in round " in flock.announced("run_ended")[-1]["reason"]


@needs_strace
def test_a_target_ends_in_the_same_model_whenever_the_server_is_killed(tmp_path: Path) -> None:
    """In an early round, and when a score has reached it and the end is about to be decided."""
    found = []
    for name in ("undisturbed", "early", "late"):
        (tmp_path / name).mkdir()
        with flock(tmp_path / name) as made:
            result = (made.run_dir / ".tmp-model.safetensors",)  # renamed before the end is in the journal
            gate = made.folder / "gate"
            server = made.begin_server(*TARGET, gate=gate)
            dies = "signal=KILL:when=1" if name == "late" else "signal=CONT:when=1"
            tracer = Tracer(server, gate, "rename,renameat,renameat2", dies, result)
            server.wait_for("listening")
            clients = made.clients("c0", "c1")
            if name == "early":
                server.wait_for("round_committed", count=2)
                server.kill()
            if name == "late":
                server.process.join(LIMIT_S)
                assert server.process.exitcode == -signal.SIGKILL
                assert server.events("evaluated")[-1]["accuracy"] >= 0.8
                assert made.rows("SELECT 1 FROM meta WHERE name = 'ended_kind'") == []
            if name != "undisturbed":
                server = made.server()
            assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
            tracer.close()
            found.append(check_target(made))
    assert len(set(found)) == 1
