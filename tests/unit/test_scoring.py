"""Tests of the server's models: what is taken of a commit, what runs beside, and what a model may raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from edgeflock.common.errors import UsageError
from edgeflock.common.scores import Score, Summary
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import Method, Params, ServerHalf, State
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.core.effects import Announce
from edgeflock.server.core.events import Tested, TestFailed
from edgeflock.server.core.testing import Tests
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import Threads
from edgeflock.server.engine.scoring import ClientScores, Scoring
from edgeflock.server.learning.learner import Learner
from support.tiny_run import layouts, learner


class Marks:
    """An evaluator whose score is the first number of the model, and which keeps what it has tested."""

    def __init__(self) -> None:
        self.loaded: list[float] = []
        self.error: Exception | None = None

    def load(self, parameters: Tensor, buffers: Tensor) -> Callable[[], Score]:
        found = float(parameters[0])
        self.loaded.append(found)

        def run() -> Score:
            if self.error is not None:
                raise self.error
            return Score(found, 2.0, 10)

        return run


class Both(ServerHalf[Params]):
    """FedAvg that has two models of its own beside the global one."""

    def models(self, state: State) -> Iterator[tuple[str, Tensor]]:
        for mark in (0.25, 0.75):
            yield "personal", torch.full_like(state.model, mark)


class NoneOfAll(Both):
    """The same without a global one."""

    has_global = False


def mind(half: type[ServerHalf[Params]] = ServerHalf) -> Learner:
    made = learner(layouts(), method=Method(name="m", summary="", server=half))
    made.state.model.fill_(0.5)
    return made


@pytest.fixture(scope="module")
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.shut()


def scoring(threads: Threads, marks: Marks | None, *, blocking: bool = False) -> tuple[Scoring, RoundTimes]:
    line, given = RoundTimes(), Tests(2, 9, blocking)
    evaluator: Any = marks
    return Scoring(evaluator, given, line, threads), line


def result_of(of: Scoring, round: int, model: Learner) -> Tested | TestFailed:
    return asyncio.run(of.test(round, model))


OWN = ("global", Summary(0.5, 2.0, 10, worst_tenth=0.5))


def test_the_model_of_a_commit_is_tested_also_when_the_state_has_moved_on(threads: Threads) -> None:
    marks, model = Marks(), mind()
    of, line = scoring(threads, marks)
    of.take(1, model)
    assert (marks.loaded, of.took_s) == ([], 0.0)  # not every round
    of.take(2, model)
    of.take(2, model)  # a commit that is tried again
    assert marks.loaded == [0.5]
    model.state.model.fill_(0.9)
    found = result_of(of, 2, model)
    assert isinstance(found, Tested)
    assert (found.round, found.scores) == (2, (OWN,))
    assert line.take()[2]["evaluate_busy"] >= 0.0


def test_a_test_that_a_crash_has_cut_off_is_of_the_state_as_it_is(threads: Threads) -> None:
    marks, model = Marks(), mind()
    of, _ = scoring(threads, marks)
    found = result_of(of, 3, model)
    assert isinstance(found, Tested)
    assert found.scores == (OWN,)
    of.take(5, model, last=True)
    assert marks.loaded == [0.5, 0.5]


def test_where_the_round_waits_for_its_test_no_busy_seconds_stand_beside_it(threads: Threads) -> None:
    of, line = scoring(threads, Marks(), blocking=True)
    result_of(of, 2, mind())
    assert line.take() == {}


def test_other_models_are_tested_at_once_and_summed_up_by_their_name(threads: Threads) -> None:
    marks = Marks()
    of, _ = scoring(threads, marks)
    of.take(2, mind(Both))
    assert (marks.loaded, of.took_s > 0) == ([0.25, 0.75, 0.5], True)
    group = ("personal", Summary(0.5, 2.0, 20, 2, 0.25, 0.25))
    for half, expected in ((Both, (group, OWN)), (NoneOfAll, (group,))):
        found = result_of(of, 2, mind(half))
        assert isinstance(found, Tested)
        assert found.scores == expected


def test_without_an_evaluator_nothing_is_taken(threads: Threads) -> None:
    of, _ = scoring(threads, None)
    of.take(2, mind())
    assert of.took_s == 0.0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such\n  layer"), "ValueError: no such layer"),
        (KeyError(), "KeyError"),
        (UsageError("the file is gone"), "the file is gone"),
        (RuntimeError("x" * 999), f"RuntimeError: {'x' * 300}"),
    ],
)
@pytest.mark.parametrize("half", [ServerHalf, Both])
def test_what_a_model_raises_is_said_in_a_line(
    threads: Threads, half: type[ServerHalf[Params]], error: Exception, words: str
) -> None:
    marks = Marks()
    marks.error = error
    of, _ = scoring(threads, marks)
    found = result_of(of, 2, mind(half))
    assert isinstance(found, TestFailed)
    assert (found.round, found.reason) == (2, words)
    assert isinstance(result_of(of, 4, mind(half)), TestFailed)  # nothing of it is left


def test_clients_scores_are_those_of_the_counted_members_by_the_models_names() -> None:
    good, poor = Score(0.8, 0.5, 10), Score(0.4, 1.5, 30)
    outcomes = [Outcome(seat, b"", Verdict.COUNTED) for seat in (0, 1, 2)] + [Outcome(3, b"", Verdict.LATE)]
    told = {0: {"client_local": good}, 1: {"client_local": poor, "client_pooled": good}, 2: {}}
    found = ClientScores.of({**told, 3: {"client_local": good}}, outcomes)
    assert found.by_seat == {seat: told[seat] for seat in (0, 1)}
    assert {name: (one.accuracy, one.members, one.samples) for name, one in found.summaries().items()} == {
        "client_local": (pytest.approx(0.6), 2, 40),
        "client_pooled": (0.8, 1, 10),
    }
    said = found.announcements(3)
    assert [(one.name, one.fields["model"], one.fields["members"], one.written) for one in said] == [
        ("evaluated", "client_local", 2, True),
        ("evaluated", "client_pooled", 1, True),
    ]
    assert isinstance(said[0], Announce)
