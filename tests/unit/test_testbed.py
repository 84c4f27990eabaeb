"""A testbed without devices: what its file may say, what it reckons, reads and finds, and who owns what."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import pytest

from edgeflock.common.errors import UsageError
from edgeflock.lab.history import RoundHistory
from edgeflock.lab.testbed import checks, gauges, laying, owner, plan, quota, sweep, telling
from edgeflock.lab.testbed.breakdown import DEVICE, SERVER, WAIT, Breakdown, SeedGroup, parts
from edgeflock.lab.testbed.gauges import CpuBook, Measures, Sent, WorkSpan
from edgeflock.lab.testbed.pacer import Leash, cpu_seconds
from edgeflock.lab.testbed.plan import MediumTerms, TestbedPlan, make_plan

GRID = {"grid": {"method": ["fedavg", "fednag"]}, "run": {"clients": 4, "model": "linear"}}


def made(**tables: Any) -> TestbedPlan:
    return make_plan({**GRID, **tables}, "bed.toml")


def one(method: str = "fedavg", **more: Any) -> Breakdown:
    """Return a cell of ten rounds of two seconds each, by four devices."""
    known: dict[str, Any] = {
        "method": method, "setting": "", "seed": "0", "reached": True, "rounds": 10, "iterations": 200.0,
        "seconds": 20.0, "parts": dict.fromkeys((*DEVICE, *SERVER, WAIT), 0.25),
        "prepare_s": 0.0, "tests_beside_s": 0.0, "down": 5e6, "up": 5e6, "devices": 4,
        "cpu_s": 4.0, "server_cpu_s": 1.0, "energy_j": 36.0, "best": 0.9,
    }  # fmt: skip
    return Breakdown(**(known | more))


# ------------------------------------------------------------------------------------------- the file


def test_a_file_without_tables_of_its_own_has_sixteenths_of_a_pi() -> None:
    found = made()
    assert (found.clients, round(found.devices.share, 3), found.medium.rate) == (4, 0.077, 40e6)
    assert "7.7% of a core" in plan.describe(found)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"devices": {"cpus": 2}}, "unknown key in [devices] of bed.toml: cpus"),
        ({"devices": {"quota": "20ms"}}, "quota in [devices] of bed.toml is 0.02, allowed is at most"),
        ({"devices": {"cpu": "fast"}}, "allowed is auto or quota or pace or free"),
        (
            {"medium": {"rate": "fast"}},
            "rate in [medium] of bed.toml is 'fast', allowed is a rate such as 40mbit",
        ),
        ({"medium": {"loss": 1.0}}, "loss in [medium] of bed.toml is 1.0"),
        ({"medium": 7}, "medium in bed.toml is 7, allowed is a table, [medium]"),
        ({"sweep": {"rates": ["40"]}}, "rates in [sweep] of bed.toml"),
        ({"sweep": {"speeds": [0]}}, "speeds in [sweep] of bed.toml"),
        ({"run": {"listen": ":9300"}}, "listen in bed.toml: the testbed gives it"),
        ({"run": {"processes": 1}}, "processes in bed.toml: every device is a process"),
        ({"run": {"clients": 300}}, "clients in bed.toml is 300, allowed is at most 250"),
        ({"grid": {"clients": [2, 4]}, "run": {}}, "clients in bed.toml is [2, 4]"),
        ({"devices": {"external": True}}, "listen must name the address"),
        ({"wifi": {}}, "unknown key in bed.toml: wifi"),
    ],
)
def test_what_a_file_may_not_say_is_a_sentence(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        made(**tables)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_devices_that_come_by_themselves_need_an_address() -> None:
    found = made(devices={"external": True}, run={"clients": 2, "listen": ":9300", "insecure": True})
    assert found.devices.external
    assert "by themselves" in plan.describe(found)


def test_without_root_it_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="needs root, this is user 1000"):
        laying.require()


def test_without_a_tunnel_it_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(laying, "_TUNNEL", tmp_path / "tun")
    with pytest.raises(UsageError, match="cannot be opened: No such file"):
        laying.require()


# ------------------------------------------------------------------------------------------- what is reckoned


def test_a_round_is_cpu_by_share_and_bytes_by_rate_and_the_server() -> None:
    bed = made(medium={"rate": "8mbit", "delay": 0, "jitter": 0}, cable={"delay": 0})
    assert sweep.round_s(sweep.work([one()]), bed) == pytest.approx(0.1 * 13 + 1.0 + 0.1)
    assert sweep.round_s(sweep.work([one()]), bed, speed=2.0) == pytest.approx(0.05 * 13 + 1.0 + 0.1)


def test_what_the_server_trains_beside_the_devices_can_be_what_a_round_waits_for() -> None:
    bed = made(medium={"delay": 0, "jitter": 0}, cable={"delay": 0})
    assert sweep.round_s(sweep.work([one(prepare_s=90.0)]), bed) == pytest.approx(9.0 + 0.1)


def test_the_sweep_names_the_links_between_which_the_order_turns() -> None:
    """One method sends much and is done soon, the other is frugal and takes longer."""
    rows = [
        SeedGroup("eager", "", [one("eager", down=4e7, up=4e7)]),
        SeedGroup("frugal", "", [one("frugal", rounds=20, down=2e6, up=2e6, cpu_s=8.0)]),
        SeedGroup("lost", "", [one("lost", reached=False)]),
    ]
    bed = made()
    found = sweep.spots(rows, bed)
    assert {spot.link: spot.order[0] for spot in found if spot.speed == 1.0} == {
        "5mbit": "frugal", "10mbit": "frugal", "40mbit": "frugal", "ethernet": "eager"
    }  # fmt: skip
    lines = sweep.turns(found, bed.sweep)
    assert "frugal is before eager at 40mbit, behind it at ethernet" in lines
    assert not any("lost" in line for line in lines)


def test_cables_carry_the_bytes_of_all_devices_at_a_time() -> None:
    work = sweep.work([one()])
    assert sweep.passing_s(work, MediumTerms(rate=8e6), 4) == pytest.approx(1.0)
    assert sweep.passing_s(work, MediumTerms(kind="ethernet", rate=8e6), 4) == pytest.approx(0.25)


# ------------------------------------------------------------------------------------------- what is read

DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0
   fl0:    5000      10    0    0    0     0          0         0    60000     100    0    2    0     0
Tcp: RtoAlgorithm RtoMin OutSegs RetransSegs
Tcp: 1 200 97 3
TcpExt: SyncookiesSent TCPOrigDataSent
TcpExt: 0 90
"""


def test_what_an_interface_has_sent_is_told_apart() -> None:
    found = gauges.read_sent(DEV)
    assert found == Sent(bytes=60000 + 14 * 100, bare=7 * 66, again=3 * 1514, dropped=2)
    assert found.new == 61400 - 462 - 4542
    assert found.minus(found) == Sent()


def test_a_namespace_without_a_tunnel_has_sent_nothing() -> None:
    assert gauges.read_sent("") == Sent()


def test_a_device_s_training_is_found_where_it_used_the_most() -> None:
    """It waits for two seconds, trains with a tenth of a core for two, waits again."""
    book = CpuBook([1])
    book.samples = [(at / 10, (min(max(at / 10 - 2, 0), 2) / 10,)) for at in range(61)]
    seconds, used = gauges.used_while_training(book, [WorkSpan(0, 0.0, 6.0, 2.0)])
    assert (round(seconds, 6), round(used, 6)) == (1.6, 0.16)


def test_a_training_that_is_too_short_is_not_watched() -> None:
    book = CpuBook([1])
    book.samples = [(at / 10, (0.0,)) for at in range(60)]
    assert gauges.used_while_training(book, [WorkSpan(0, 0.0, 6.0, 0.2), WorkSpan(0, 50.0, 60.0, 2.0)]) == (
        0.0,
        0.0,
    )


def test_the_cpu_clock_of_a_process_is_its_own() -> None:
    before, mine = cpu_seconds(os.getpid()), time.process_time()
    sum(range(200_000))
    after = cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert 0 < after - before <= time.process_time() - mine + 0.05
    assert cpu_seconds(2**22 - 1) is None


def test_a_leash_gives_a_device_its_share_and_saves_little() -> None:
    """One that would use a whole core for 10 s is let go for a tenth of them; a rest saves it 1 ms."""
    leash, used = Leash(0.1, 0.0, 0.0), 0.0
    for tick in range(1, 2501):
        used += 0.0 if leash.stopped else 0.004
        leash.holds(used, tick * 0.004)
    assert used == pytest.approx(1.0, rel=0.02)
    leash.holds(used, 1000.0)
    assert (leash.credit, leash.stopped) == (0.001, False)


def test_what_was_read_of_a_cell_is_kept_by_life(tmp_path: Any) -> None:
    path = tmp_path / "measures" / "cell.json"
    lives = [Measures(1.0, 2.0, up=Sent(bytes=7), mode="quota"), Measures(3.0, 4.0, medium={"packets": 1.0})]
    assert gauges.recall(path) == []
    for life in lives:
        gauges.keep(path, life)
    assert gauges.recall(path) == lives


# ------------------------------------------------------------------------------------------- checks


class NoHistory:
    """A run whose journal is of no interest."""

    events = ()
    rounds = ()
    others = ()


def held(name: str = "fedavg", lives: tuple[Measures, ...] = (), **more: Any) -> checks.HeldCell:
    nothing: Any = NoHistory()
    return checks.HeldCell(name, nothing, one(name, **more), lives, "aaaa", "global")


@pytest.mark.parametrize(
    ("used", "passed", "words"), [(7.5, True, "0.97"), (6.2, False, "too slow"), (9.0, False, "1.17")]
)
def test_the_share_of_cpu_is_told_with_what_the_host_lacked(used: float, passed: bool, words: str) -> None:
    life = Measures(0.0, 1.0, training_s=100.0, training_cpu_s=used, mode="quota")
    found = checks.used_cpu([held(lives=(life,))], made())
    assert found.passed is passed
    assert words in str(found)


def test_what_cannot_be_checked_is_said() -> None:
    free = Measures(0.0, 1.0, training_s=100.0, training_cpu_s=9.0, mode="free")
    assert checks.used_cpu([held(lives=(free,))], made()).passed is None
    assert checks.interfaces([held()]).passed is None
    assert checks.medium([held()]).passed is None
    assert checks.same_bits([held()], {}).passed is None


@pytest.mark.parametrize(("late_s", "passed"), [(0.1, True), (0.9, False)])
def test_a_medium_that_is_late_fails(late_s: float, passed: bool) -> None:
    told = {
        "packets": 100.0,
        "busy_s": 2.0,
        "lost": 1.0,
        "dropped": 0.0,
        "late_s": late_s,
        "late_packets": 99.0,
    }
    found = checks.medium([held(lives=(Measures(0.0, 10.0, medium={**told, "late_s": late_s}),))])
    assert found.passed is passed
    assert "busy 20.0% of the time, 1.00% of the packets lost" in found.words


def test_a_round_that_lasts_longer_than_reckoned_is_named() -> None:
    bed = made(medium={"rate": "8mbit", "delay": 0, "jitter": 0}, cable={"delay": 0})
    assert checks.predicted([held(seconds=24.0)], bed).passed
    found = checks.predicted([held(seconds=24.0), held("fednag", seconds=48.0)], bed)
    assert not found.passed
    assert "-50% at worst (fednag)" in found.words
    assert "left" not in found.words
    starved = Measures(0.0, 1.0, training_s=13.0, training_cpu_s=0.5, mode="quota")
    slow = held(seconds=37.0, lives=(starved,))
    assert checks.predicted([slow], bed).words.endswith("the host has left to them +0% in the middle")


def test_the_same_run_twice_has_the_same_digest() -> None:
    cells = [held(), replace(held("fednag"), digest="bbbb")]
    assert checks.same_bits(cells, {"fedavg": "aaaa"}).passed
    found = checks.same_bits(cells, {"fedavg": "aaaa", "fednag": "cccc"})
    assert str(found) == "The same run twice: FAILED: another SHA-256: fednag"


# ------------------------------------------------------------------------------------------- who owns what


def test_a_machine_without_control_groups_has_none_and_keeps_no_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(quota, "_ROOTS", (tmp_path / "nowhere", tmp_path))
    assert quota.groups("flt-none00") is None
    assert list(tmp_path.iterdir()) == []


def test_only_what_has_no_living_owner_is_taken_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(owner, "HOME", tmp_path)
    taken: list[str] = []
    monkeypatch.setattr(laying, "names", lambda mark: [f"{mark}-d0"])
    monkeypatch.setattr(laying, "processes", lambda names: iter(()))
    monkeypatch.setattr(laying, "remove", taken.extend)
    dead = tmp_path / "flt-dead00"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "processes").write_text("1 never\n")  # a number that was given again
    with owner.owned() as mark:
        assert taken == ["flt-dead00-d0"]
        assert not dead.exists()
        assert owner.clear() == []
    assert taken == ["flt-dead00-d0", f"{mark.name}-d0"]
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------- where minutes went


def a_round(number: int) -> RoundHistory:
    """Return a round of four devices: 5 s, of which the mean device trained for three and sent for one."""
    values = {"select_s": 0.1, "open_s": 4.5, "fold_s": 0.1, "commit_s": 0.2, "evaluate_s": 0.1}
    costs = {"train_s": 12.0, "deliver_s": 4.0, "wait_s": 2.0}
    return RoundHistory(0, number, "", True, (0, 1, 2, 3), {"counted": 4}, values, costs, {}, {})


def test_the_parts_of_rounds_are_their_seconds() -> None:
    rounds = [a_round(1), a_round(2)]
    found = parts(rounds, sum(one.seconds for one in rounds))
    assert {name: round(seconds, 6) for name, seconds in found.items()} == {
        "fetch": 0.0, "train": 6.0, "deliver": 2.0, "wait": 1.0,
        "select": 0.2, "fold": 0.2, "commit": 0.4, "tests": 0.2,
    }  # fmt: skip
    assert sum(found.values()) == pytest.approx(10.0)


def test_a_method_that_missed_the_target_counts_as_at_least_so_slow() -> None:
    missed = SeedGroup("slow", "", [one("slow", reached=False, seconds=60.0)])
    came = SeedGroup("fast", "", [one("fast"), one("fast", seconds=40.0, seed="1")])
    assert telling._time_row(missed, came)[:5] == ("slow", "> 10", "> 200", "> 1.00", "> 2.00")
    assert telling._time_row(came, came)[:5] == ("fast", "10 ± 0", "200 ± 0", "0.50 ± 0.24", "1.00")
    assert telling._time_row(came, missed)[4] == "-"


def test_a_brief_plan_has_one_seed_and_no_target() -> None:
    bed = made(
        target=0.9,
        grid={"method": ["fedavg", "fednag"], "seed": [3, 4]},
        run={"clients": 4, "model": "linear", "rounds": 50, "target": {"accuracy": 0.9}},
    )
    brief = sweep.over(bed.briefly(2), "5mbit")
    assert [(cell.config.seed, cell.config.rounds, cell.config.target) for cell in brief.grid.cells] == [
        (3, 2, {}),
        (3, 2, {}),
    ]
    assert (brief.medium.rate, brief.check.repeat, bed.medium.rate) == (5e6, 0, 40e6)
