"""Budgets: how limits are read, what counts as used over several lives, when no further round is opened."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from edgeflock.common.command.kinds import size
from edgeflock.common.errors import BadValue, UnknownName
from edgeflock.server.config import ServerConfig
from edgeflock.server.costs.budget import Budget, Spent, parse, raised, unmeasured
from edgeflock.server.files.run_toml import to_toml
from edgeflock.server.start.resolve import combine, resolve


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500", 1500),
        ("1500B", 1500),
        ("800KB", 800e3),
        ("800kB", 800e3),
        ("1.5MB", 1.5e6),
        ("2GB", 2e9),
        ("1KiB", 1024),
        ("1.5 MiB", 1.5 * 2**20),
        ("2GiB", 2**31),
    ],
)
def test_sizes_are_read_in_powers_of_1000_and_1024(text: str, expected: float) -> None:
    assert size(text) == expected


def test_limits_are_read_in_seconds_and_bytes() -> None:
    assert parse({"time": "90s", "cpu": "2h", "bytes": "500MB"}) == {"time": 90, "cpu": 7200, "bytes": 5e8}
    assert parse({"time": "1.5m"}) == {"time": 90}


@pytest.mark.parametrize(
    ("text", "expected"), [("800", 800), ("800J", 800), ("50 kJ", 5e4), ("20Wh", 72e3), ("1.5kWh", 5.4e6)]
)
def test_energies_are_read_in_joules(text: str, expected: float) -> None:
    assert parse({"energy": text}) == {"energy": expected}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("time", "soon", "--budget time is 'soon', allowed is a time > 0 such as 60s, 10m or 2h"),
        ("time", "0", "--budget time is '0', allowed is a time > 0"),
        ("time", "-5s", "--budget time is '-5s'"),
        ("time", "5MB", "--budget time is '5MB'"),
        ("cpu", "nan", "--budget cpu is 'nan', allowed is CPU time > 0"),
        ("bytes", "60s", "--budget bytes is '60s', allowed is a size > 0 such as 800KB, 500MB or 2GiB"),
        ("bytes", "0MB", "--budget bytes is '0MB'"),
        ("bytes", "1e6", "--budget bytes is '1e6'"),
        ("bytes", "5Mb/s", "--budget bytes is '5Mb/s'"),
        ("bytes", "9" * 400, "--budget bytes is '999"),
        ("cpu", "2 days", "--budget cpu is '2 days'"),
        ("energy", "-1J", "--budget energy is '-1J'"),
        ("energy", "5kW", "--budget energy is '5kW', allowed is an energy > 0 such as 800J, 50kJ, 20Wh"),
        ("energy", "7k", "--budget energy is '7k'"),
        ("energy", "0Wh", "--budget energy is '0Wh'"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(name: str, text: str, sentence: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse({name: text})
    assert str(refused.value).startswith(sentence)


def test_an_unknown_resource_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown budget 'byte': did you mean 'bytes'"):
        parse({"byte": "5MB"})


def test_the_time_of_earlier_lives_counts_too() -> None:
    budget = Budget({"time": 60.0}, {"time": 10.0})
    assert budget.used()["time"] == 10.0
    assert budget.used(seconds=3.5)["time"] == 13.5


def test_bytes_go_both_ways_and_cpu_is_corrected_when_the_whole_round_is_known() -> None:
    budget = Budget({}, {"bytes": 100.0, "cpu": 5.0})
    budget.settle(1, {0: {"bytes_down": 30, "bytes_up": 20, "cpu_s": 2.0}, 1: {"bytes_down": 7}}, {0, 1})
    expected = {"time": 0.0, "bytes": 160.0, "cpu": 7.5, "energy": 0.0}
    assert budget.used(moved=3.0, server_cpu_s=0.5) == expected
    budget.correct(1, 0, {"cpu_s": 2.5, "energy_j": 30.0})
    budget.correct(1, 0, {"cpu_s": 2.5, "energy_j": 30.0})  # said twice
    budget.correct(7, 0, {"cpu_s": 99.0, "energy_j": 99.0})  # of a round that nobody knows
    assert (budget.used()["cpu"], budget.used()["energy"]) == (7.5, 30.0)
    budget.settle(1, {0: {"cpu_s": 2.0}}, {0})  # an effect that is carried out again
    assert budget.used()["cpu"] == 7.5
    budget.settle(2, {0: {"cpu_s": math.nan}, 1: {"cpu_s": -4.0}}, {0, 1})  # a client may claim anything
    budget.correct(2, 0, {"cpu_s": math.inf, "energy_j": -1.0})
    assert budget.used()["cpu"] == 7.5


def test_more_of_the_last_two_rounds_of_a_client_may_be_stated_in_any_life() -> None:
    """As the server takes it: what is not counted here would stand in the journal alone."""
    budget = Budget({}, {"cpu": 5.0})
    budget.recall(3, {0: {"cpu_s": 2.0, "energy_j": None}})
    budget.settle(4, {0: {"cpu_s": 1.0}}, {0})
    budget.correct(3, 0, {"cpu_s": 2.5})
    budget.correct(4, 0, {"cpu_s": 1.25})
    assert budget.used()["cpu"] == 5.0 + 0.5 + 1.25
    budget.settle(5, {0: {"cpu_s": 1.0}}, {0})
    assert not budget.correct(3, 0, {"cpu_s": 99.0})  # nobody takes that any more
    assert budget.used()["cpu"] == 5.0 + 0.5 + 1.25 + 1.0


def test_rounds_in_which_a_client_only_moved_late_bytes_do_not_push_out_those_it_had_a_part_in() -> None:
    budget = Budget({})
    budget.settle(1, {0: {"cpu_s": 1.0}}, {0})
    for number in (2, 3):
        budget.settle(number, {0: {"bytes_up": 10, "bytes_down": 0}}, set())
    assert budget.correct(1, 0, {"cpu_s": 1.5})
    assert (budget.used()["cpu"], budget.used()["bytes"]) == (1.5, 20.0)


def test_what_is_stated_of_a_round_counts_once_before_and_after_its_commit() -> None:
    budget = Budget({})
    rows = {0: {"cpu_s": 2.0, "energy_j": 9.0}, 1: {"cpu_s": math.nan, "bytes_up": 5}}
    assert budget.uncharged(1, rows) == {"cpu": 2.0, "energy": 9.0}
    budget.settle(1, rows, {0, 1})
    assert budget.uncharged(1, rows) == {"cpu": 0.0, "energy": 0.0}
    assert budget.uncharged(1, {0: {"cpu_s": 2.5}}) == {"cpu": 0.5, "energy": 0.0}
    assert budget.uncharged(2, rows) == {"cpu": 2.0, "energy": 9.0}


def test_bytes_are_predicted_and_seconds_where_they_are_drawn() -> None:
    budget = Budget({"time": 60.0, "bytes": 1000.0, "cpu": 7.0})
    used = {"time": 59.9, "bytes": 700.0, "cpu": 6.9}
    assert budget.beyond(used, {"bytes": 300}) == ""
    assert budget.beyond(used, {"bytes": 301}) == (
        "the budget of bytes leaves no room for another round: 700 of 1000 B are used, a round may take 301 B"
    )
    assert budget.beyond(used | {"time": 61.0}, {}) == "the budget of time is used up: 61 s of 60 s"
    assert budget.beyond(used | {"cpu": 7.0}, {}) == "the budget of cpu is used up: 7 s of 7 s"
    assert budget.beyond(used | {"time": 61.0, "cpu": 8.0}, {}, steered=True) == ""
    assert "bytes" in budget.beyond(used, {"bytes": 301}, steered=True)
    assert budget.beyond(used, {"time": 0.05}) == ""
    assert budget.beyond(used, {"time": 0.25}) == (
        "the budget of time leaves no room for another round: 59.9 of 60 s are used, a round may take 0.25 s"
    )
    assert budget.beyond(used, {"time": 0.25}, steered=True) == ""
    assert Budget().beyond(used, {"bytes": 1e9}) == ""


def test_a_round_at_hand_ends_when_a_limit_is_reached_and_bytes_when_they_are_beyond_it() -> None:
    budget = Budget({"time": 60.0, "bytes": 1000.0, "energy": 50e3})
    used = {"time": 59.9, "bytes": 1000.0, "energy": 4e4}
    assert budget.reached(used) == ""
    assert budget.reached(used | {"time": 60.0}) == "the budget of time is used up: 60 s of 60 s"
    assert budget.reached(used | {"time": 60.0}, but=["time"]) == ""
    assert budget.reached(used | {"bytes": 1001.0}) == "the budget of bytes is used up: 1001 B of 1000 B"
    assert budget.reached(used | {"energy": 5e4}) == "the budget of energy is used up: 50000 J of 50000 J"


def test_what_is_left_is_shared_among_the_clients_of_a_round() -> None:
    """The server has a share of the CPU time; nothing left is an allowance of nothing, not none."""
    budget = Budget({"cpu": 100.0, "energy": 60.0, "time": 5.0})
    used = {"cpu": 80.0, "energy": 0.0, "time": 0.0}
    assert budget.allowances(used, 3) == {"cpu": 5.0, "energy": 20.0}
    assert budget.allowances(used | {"cpu": 101.0}, 3)["cpu"] == 0.0
    assert Budget({"bytes": 5.0}).allowances(used, 3) == {}


def test_after_an_allowance_that_was_too_small_a_budget_has_little_left_or_nothing() -> None:
    budget = Budget({"energy": 3.0})
    left = "the budget of energy leaves too little for a client's round: 2.9 J of 3 J are used"
    assert budget.short({"energy": 2.9}, "energy") == left
    assert budget.short({"energy": 3.06}, "energy") == "the budget of energy is used up: 3.06 J of 3 J"


def test_a_budget_of_which_nobody_says_a_word_is_one_that_clients_alone_could_tell() -> None:
    budget = Budget(dict.fromkeys(("time", "bytes", "cpu", "energy"), 9.0))
    assert budget.unmeasured() == ["energy"]
    budget.settle(1, {0: {"energy_j": 0.5}}, {0})
    assert budget.unmeasured() == []
    assert [unmeasured(name, 0.0) for name in ("energy", "cpu", "of a version to come")] == [
        True,
        False,
        False,
    ]


def test_what_is_left_is_never_shared_among_nobody() -> None:
    budget = Budget({"energy": 8.0, "cpu": 6.0})
    assert budget.allowances({"energy": 2.0, "cpu": 0.0}, -1) == {"energy": 6.0, "cpu": 6.0}
    assert budget.allowances({"energy": 2.0, "cpu": 0.0}, 1) == {"energy": 6.0, "cpu": 3.0}


def test_what_a_run_has_spent_is_what_counts_for_its_limits() -> None:
    """A method that counts its own time (FedADM's simulated clock) takes the place of ours."""
    spent = Spent({"time": 7.0, "bytes": 90.0, "cpu": 1.0}, {"time": 2.5}, {"time": 10.0, "bytes": 100.0})
    assert spent.shares == {"time": [2.5, 10.0], "bytes": [90.0, 100.0]}
    assert spent.fields() == {"budget": spent.shares}
    assert Spent({"time": 7.0}, {}, {}).fields() == {}


def test_a_limit_is_raised_if_it_is_higher_or_gone() -> None:
    assert raised({"time": 60.0}, {"time": 61.0})
    assert raised({"time": 60.0, "bytes": 5.0}, {"time": 60.0})
    assert not raised({"time": 60.0}, {"time": 60.0, "bytes": 5.0})
    assert not raised({}, {"bytes": 5.0})


def test_the_method_s_own_budget_holds_where_the_run_sets_none() -> None:
    """FedADM's adaptive tau needs one of time; a fixed tau knows none."""
    assert resolve(ServerConfig(method="fedadm")).budget == {"time": "1m"}
    assert resolve(ServerConfig(method="fedadm", budget={"time": "5s"})).budget == {"time": "5s"}
    assert resolve(ServerConfig(method="fedadm", set={"tau": "fixed:3"})).budget == {}
    assert resolve(ServerConfig()).budget == {}


def test_a_run_keeps_its_budget_and_it_may_be_raised_on_resume(tmp_path: Path) -> None:
    config = resolve(ServerConfig(budget={"bytes": "5MB", "time": "10m"}))
    (tmp_path / "run.toml").write_text(to_toml(config))
    assert combine({"run_dir": tmp_path}).budget == {"bytes": "5MB", "time": "10m"}
    raised_ = combine({"run_dir": tmp_path, "budget": {"bytes": "6MB"}})
    assert raised_.budget == {"bytes": "6MB", "time": "10m"}
