"""What is said at a start of settings that are far from where their method works."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from edgeflock.methods.kit.registry import load, names
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.cautions import cautions
from edgeflock.server.start.resolve import resolve


def said(**given: Any) -> str:
    return "; ".join(cautions(resolve(ServerConfig(**given))))


@pytest.mark.parametrize("method", ["mime", "mimelite"])
def test_a_momentum_that_stands_still_bears_no_large_rate(method: str) -> None:
    assert said(method=method).startswith(f"{method}: lr 0.05 is beyond what it bears on skewed data: ")
    assert said(method=method, lr=0.01) == said(method=method, set={"b": "0"}) == ""


def test_a_drift_that_is_never_reset_is_for_clients_that_are_asked_every_round() -> None:
    words = "fedtr: with a part of the clients in a round its model falls for good after some rounds, "
    assert said(method="fedtr", cohort=2).startswith(words)
    assert said(method="fedtr", participation="online", cohort=2).startswith(words)
    assert said(method="fedtr") == said(method="fedtr", cohort=2, set={"drift": "off"}) == ""


@pytest.mark.parametrize("method", ["fednag", "fastslowmo", "pfedmo"])
def test_few_steps_with_a_small_rate_hardly_train(method: str) -> None:
    words = f"{method}: with lr 0.01 and 6 steps a round it hardly trains: its papers have 20 and 40 steps"
    assert said(method=method, clients=10).startswith(words)
    assert said(method=method, clients=10, epochs=4) == said(method=method, steps=20) == ""
    assert said(method=method, clients=10, lr=0.05) == ""
    assert said(method=method, steps=5).startswith(f"{method}: with lr 0.01 and 5 steps a round")


def test_a_push_as_printed_that_grows_from_round_to_round() -> None:
    """Four clients with 20 batches of 50: g = mu lr K / (1 - momentum) is 2 mu."""

    def growth(mu: str, *, given: dict[str, Any] | None = None, **options: str) -> tuple[str, str]:
        words = said(method="fedtrip", set={"push_limit": "0", "mu": mu, **options}, **(given or {}))
        head, _, rest = words.partition(" times its own last move, turned round, which above 1 ")
        return head.rpartition(" = ")[2], rest.partition(":")[0]

    assert growth("2") == ("4", "grows from round to round")
    assert growth("2", given={"cohort": 2}) == ("4", "can grow from round to round")
    assert growth("2", given={"epochs": 2})[0] == growth("2", given={"steps": 40})[0] == "8"
    assert growth("2", given={"lr": 0.02, "momentum": 0.5})[0] == "1.6"
    assert growth("2", xi_mode="const", xi_value="0.75")[0] == "3"
    assert growth("2", mu_per="epoch", given={"epochs": 2})[0] == "4"


@pytest.mark.parametrize(
    "given",
    [
        {"set": {"push_limit": "0"}},
        {"set": {"push_limit": "0", "mu": "0.5"}},  # g is 1, which may be
        {"set": {"push_limit": "0", "mu": "2"}, "momentum": 0.5},
        {"set": {"push_limit": "0", "mu": "2", "xi_mode": "const", "xi_value": "0.25"}},
        {"set": {"push_limit": "0", "mu": "2", "mu_per": "epoch"}, "steps": 40},  # epochs are not known
        {"set": {"mu": "9"}},  # limited
    ],
)
def test_of_a_push_that_does_not_grow_nothing_is_said(given: dict[str, Any]) -> None:
    assert said(method="fedtrip", **given) == ""


@pytest.mark.parametrize("method", ["fedavg", "fedtrip", "scaffold", "centralized"])
def test_of_most_runs_there_is_nothing_to_say(method: str) -> None:
    assert said(method=method) == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "fedtr", "set": {"eta_g": "0.1"}}, "eta_g has no effect with drift=additive"),
        ({"method": "fedtrip", "set": {"xi_value": "0.5"}}, "xi_value has no effect with xi_mode=inverse"),
        ({"method": "domo", "set": {"beta": "0.5", "fusion": "none"}}, "beta has no effect with fusion=none"),
        (
            {"method": "fedadm", "set": {"tau": "fixed:5", "phi": "0.1"}},
            "phi has no effect with tau=fixed:5",
        ),
        (
            {"method": "fedadm", "steps": 5},
            "--steps 5 has no effect: the method itself says how many steps a round has",
        ),
        (
            {"method": "fedadm", "epochs": 2},
            "--epochs 2 has no effect: the method itself says how many steps a round has",
        ),
    ],
)
def test_an_option_without_effect_is_told_of(given: dict[str, Any], words: str) -> None:
    assert said(**given) == f"{given['method']}: {words}"


@pytest.mark.parametrize(
    "given",
    [
        {"method": "fedtr", "set": {"eta_g": "0.1", "drift": "descent"}},
        {"method": "fedtrip", "set": {"xi_value": "0.5", "xi_mode": "const"}},
        {"method": "domo", "set": {"beta": "0.5", "fusion": "intra"}},
        {"method": "fedadm", "steps": 0},
        {"method": "fedadm"},
    ],
)
def test_of_one_with_an_effect_nothing_is_said(given: dict[str, Any]) -> None:
    assert said(**given) == ""


def test_every_condition_of_an_option_names_another_one_and_its_values() -> None:
    for name in names():
        fields = {field.name: field for field in dataclasses.fields(load(name).params)}
        for field in fields.values():
            if when := field.metadata["when"]:
                other, _, values = when.partition("=")
                assert all(fields[other].metadata["allowed"].accepts(value) for value in values.split("|"))
