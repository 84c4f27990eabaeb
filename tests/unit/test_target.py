"""Targets: how they are read, when one is reached, what is higher than before."""

from __future__ import annotations

import math

import pytest

from edgeflock.common.errors import BadValue, UnknownName, UsageError
from edgeflock.common.scores import LOSS, Metric, Summary
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.target import Target, parse
from edgeflock.server.start.resolve import resolve
from edgeflock.server.start.startup import build

MAE, F1 = Metric("mae", higher=False, share=False), Metric("f1")


def scored(value: float, **others: float) -> Summary:
    return Summary(value, 0.5, 10, others=others)


def test_a_target_may_be_any_metric_in_its_own_direction() -> None:
    target = parse({"mae<": "0.5"}, (MAE, F1, LOSS))
    assert (target, str(target)) == (Target(0.5, MAE), "mae 0.5")
    assert target.reached(3, scored(0.4), MAE) == "the target is reached: mae 0.4000 of 0.5 in round 3"
    assert target.reached(3, scored(0.51), MAE) == target.reached(3, scored(math.nan), MAE) == ""
    assert parse({"f1": "0.8"}, (MAE, F1)).reached(3, scored(9.0, f1=0.8), MAE)
    assert not parse({"f1": "0.8"}, (MAE, F1)).reached(3, scored(9.0), MAE), "it is not known"
    assert parse({"loss<": "0.5"}).reached(1, scored(0.1))


def test_a_sign_against_the_direction_is_refused() -> None:
    with pytest.raises(BadValue, match=r"--target is 'mae>=0.5', allowed is mae<=X: of mae less is better"):
        parse({"mae>": "0.5"}, (MAE,))
    with pytest.raises(UsageError, match="--target names accuracy and loss: give one of them"):
        parse({"accuracy": "0.5", "loss": "0.1"})


def test_a_target_is_reached_at_its_accuracy_and_not_below() -> None:
    target = parse({"accuracy": "0.85"})
    assert target == Target(0.85)
    assert target.reached(7, scored(0.85)) == "the target is reached: accuracy 0.8500 of 0.85 in round 7"
    assert target.reached(7, scored(0.8499)) == target.reached(7, None) == ""
    assert parse({}).reached(7, scored(1.0)) == ""
    assert (bool(target), bool(parse({}))) == (True, False)


@pytest.mark.parametrize("text", ["0", "1.01", "-0.5", "nan", "85%", "high"])
def test_nonsense_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadValue, match=f"--target accuracy is '{text}', allowed is an accuracy in"):
        parse({"accuracy": text})


def test_an_unknown_measure_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown target 'acuracy': did you mean 'accuracy'"):
        parse({"acuracy": "0.5"})
    with pytest.raises(UnknownName, match="unknown target 'mae'"):
        parse({"mae": "0.5"})


def test_a_target_is_raised_if_it_is_higher_or_gone() -> None:
    assert Target(0.9).raised(Target(0.8))
    assert Target().raised(Target(0.8))
    assert not Target(0.8).raised(Target(0.8))
    assert not Target(0.7).raised(Target())
    assert Target(0.4, MAE).raised(Target(0.5, MAE))
    assert not Target(0.6, MAE).raised(Target(0.5, MAE))


def test_a_target_without_evaluations_is_refused() -> None:
    with pytest.raises(UsageError, match="--target needs evaluations: --eval-every is 0"):
        resolve(ServerConfig(target={"accuracy": "0.5"}, eval_every=0))


def test_a_target_of_a_method_without_a_global_model_is_refused() -> None:
    config = resolve(ServerConfig(method="fedtr", set={"head": "private"}, target={"accuracy": "0.5"}))
    with pytest.raises(UsageError, match="fedtr has no global model that could reach a --target"):
        build(config)


def test_tests_on_training_data_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="--eval-train needs evaluations: --eval-every is 0"):
        resolve(ServerConfig(eval_train=2, eval_every=0))
    config = resolve(ServerConfig(method="fedtr", set={"head": "private"}, eval_train=1))
    with pytest.raises(UsageError, match="fedtr has no global model that --eval-train could test"):
        build(config)


@pytest.mark.parametrize("asked", ["local", "both"])
def test_a_run_without_clients_has_none_to_test(asked: str) -> None:
    with pytest.raises(UsageError, match=f"^centralized has no clients: --eval-clients is {asked}$"):
        resolve(ServerConfig(method="centralized", eval_clients=asked))
    assert resolve(ServerConfig(method="centralized", eval_clients="auto")).central
