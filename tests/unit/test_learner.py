"""The server's half of a round as numbers: operations, the bytes of a round, a rate that never dies."""

from __future__ import annotations

from typing import Any

import pytest

from edgeflock.methods.kit.base import Bundles, Method, Params, Plan, Round, ServerHalf, Setting, State
from edgeflock.methods.kit.registry import load
from edgeflock.server.learning.learner import LEAST_LR, Learner, Terms
from support.learners import begun
from support.tiny_run import CLASSES, Flat, layouts

WEIGHTS = 40
SETTING = Setting(layout=layouts().parameters, classes=CLASSES, features=4, clients=3, seed=3)


class Closes(ServerHalf[Params]):
    """Asks everybody once more."""

    def closing(self, state: State) -> Plan | None:
        return Plan(lr=0.1)


def made(method: str | Method, **terms: Any) -> Learner:
    found = load(method) if isinstance(method, str) else method
    learner = Learner(found, found.params(), SETTING, layouts(), Terms(Plan(lr=0.1), **terms))
    model: Any = Flat(layouts())
    learner.begin(model)
    return learner


def closing(name: str = "closes") -> Method:
    return Method(name=name, summary="", server=Closes)


def test_operations_are_those_of_the_passes_that_were_made_and_of_what_the_method_adds() -> None:
    learner = made("fedprox", passes=(100, 200))
    training, own = 60 * 300, 2.0 * 6 * WEIGHTS
    expected = {"flops": training + own, "method_flops": own, "method_pass_flops": 0.0}
    assert learner.operations(steps=6, samples=60, held=60) == expected
    counted = learner.operations(steps=6, samples=60, held=60, forward=90, backward=60)
    assert counted == {
        "flops": training + own + 30 * 100, "method_flops": own + 30 * 100, "method_pass_flops": 30 * 100
    }  # fmt: skip
    assert learner.operations(steps=0, samples=0, held=60, forward=60)["flops"] == 60 * 100
    assert learner.operations(steps=0, samples=0, held=60)["flops"] == 0.0
    assert made("fedprox").operations(steps=6, samples=60, held=60) == {}, "a model that cannot be counted"


def test_a_method_that_passes_more_often_is_taken_to_where_the_client_does_not_count() -> None:
    learner = made("moon", passes=(100, 200))
    found = learner.operations(steps=6, samples=60, held=60)
    assert (found["flops"], found["method_pass_flops"]) == (60 * 300 + 2 * 60 * 100, 2 * 60 * 100)


def test_what_is_known_of_the_model_is_told() -> None:
    assert made("fedavg").described() == {"parameters": "40"}
    told = {"parameters": "40", "forward_flops": "100", "backward_flops": "200"}
    assert made("fedavg", passes=(100, 200)).described() == told


DOWN = 4 * WEIGHTS + 4 * 3 + 8  # the model, its buffers, its counter
SAMPLES = dict.fromkeys(range(5), 10)


def test_a_round_may_take_what_everybody_fetches_and_delivers() -> None:
    learner = made("fedavg")
    round = learner.round(1, (0, 2), SAMPLES)
    assert learner.expected_bytes(round) == 2 * 2 * DOWN
    half = made("fedavg", codec_down="fp16")
    assert half.expected_bytes(round) < 2 * 2 * DOWN
    assert made("centralized").expected_bytes(round) == 0


def test_room_is_kept_for_the_closing_task_in_which_all_fetch_and_nobody_delivers() -> None:
    learner = made(closing())
    assert learner.expected_bytes(learner.round(1, (0, 2), SAMPLES)) == 2 * 2 * DOWN + 5 * DOWN
    assert learner.expected_bytes(learner.round(2, range(5), SAMPLES, closing=True)) == 5 * DOWN
    tests_only = made("fedavg", closing_test=True)
    assert tests_only.expected_bytes(tests_only.round(1, (0, 2), SAMPLES)) == 2 * 2 * DOWN, "that is no cost"
    assert tests_only.expected_bytes(tests_only.round(2, range(5), SAMPLES, closing=True)) == 0


def test_the_closing_task_for_which_room_is_kept_is_the_round_after() -> None:
    asked: list[tuple[int, bool, tuple[int, ...]]] = []

    class Asks(Closes):
        def broadcast(self, state: State, round: Round) -> Bundles:
            asked.append((round.number, round.closing, round.cohort))
            return super().broadcast(state, round)

    learner = made(Method(name="asks", summary="", server=Asks))
    learner.expected_bytes(learner.round(4, (0, 2), SAMPLES))
    assert asked == [(4, False, (0, 2)), (5, True, (0, 1, 2, 3, 4))]


@pytest.mark.parametrize(
    ("learner", "closes", "tests", "no"),
    [
        (made("fedavg"), False, True, "there is nothing to ask"),
        (made("fedavg", closing_test=True), True, True, ""),
        (made(closing()), True, False, ""),
    ],
    ids=["nothing", "a test", "the method's own"],
)
def test_there_is_a_closing_task_if_the_method_has_one_or_clients_are_to_be_tested(
    learner: Learner, closes: bool, tests: bool, no: str
) -> None:
    assert (learner.closes, learner.closing_tests) == (closes, tests)
    assert learner.wants_no(learner.round(3, range(3), SAMPLES, closing=True)) == no
    assert learner.wants_no(learner.round(3, range(3), SAMPLES)) == ""
    plan = learner.plan(learner.round(3, range(3), SAMPLES, closing=True))
    assert (plan.steps, plan.lr) == (0, 0.0 if tests and closes else 0.1)


def test_a_rate_that_decays_has_a_floor_unless_it_was_lower_or_none() -> None:
    def rate(lr: float, number: int) -> float:
        learner = begun("fedavg", {}, SETTING, _flat(), layouts(), Plan(lr=lr), lr_decay=0.1)
        return learner.round(number, (), {}).lr

    assert [rate(0.1, number) for number in (1, 2, 50)] == [0.1, pytest.approx(0.01), LEAST_LR]
    assert (rate(1e-20, 9), rate(0.0, 9)) == (1e-20, 0.0)


def _flat() -> Any:
    return Flat(layouts())


def test_a_round_has_its_members_in_order_and_the_samples_of_everybody() -> None:
    round = made("fedavg").round(2, (2, 0), SAMPLES)
    assert round == Round(2, 0.1, (0, 2), SAMPLES, closing=False)
