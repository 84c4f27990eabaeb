"""Tests of the server's models: what is taken of a commit, what runs beside, and what a model may raise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from edgeflock.common.errors import UsageError
from edgeflock.common.scores import ClientScore, Score, Summary
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import Method, Params, ServerHalf, State
from edgeflock.methods.kit.batches import LocalData
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.core.effects import Announce, TestModel
from edgeflock.server.core.events import Tested, TestFailed
from edgeflock.server.core.testing import Tests
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import Threads
from edgeflock.server.engine.scoring import ClientScores, Scoring
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.learning.evaluator import Testers
from edgeflock.server.learning.learner import Learner
from support.scored import MARKING
from support.tiny_run import layouts, learner


class Marks:
    """An evaluator whose score is the first number of the model, and which keeps what it has tested."""

    def __init__(self) -> None:
        self.loaded: list[float] = []
        self.error: Exception | None = None
        self.held = 0

    def hold(self) -> None:
        assert not self.held, "a test begins when the last one is over"
        self.held += 1

    def release(self) -> None:
        self.held -= 1

    def load(self, parameters: Tensor, buffers: Tensor) -> None:
        self.loaded.append(float(parameters[0]))

    def score(self, samples: LocalData) -> Score:
        assert self.held
        if self.error is not None:
            raise self.error
        return Score(self.loaded[-1], 2.0, len(samples))


class Both(ServerHalf[Params]):
    """FedAvg that has two models of its own beside the global one."""

    def models(self, state: State) -> Iterator[tuple[str, Tensor]]:
        for mark in (0.25, 0.75):
            yield "personal", torch.full_like(state.model, mark)


class NoneOfAll(Both):
    """The same without a global one."""

    @property
    def has_global(self) -> bool:
        return False


def mind(half: type[ServerHalf[Params]] = ServerHalf) -> Learner:
    made = learner(layouts(), method=Method(name="m", summary="", server=half))
    made.state.model.fill_(0.5)
    return made


def back(half: type[ServerHalf[Params]], folder: Path, *rounds: int) -> tuple[Learner, Checkpoints, Any]:
    """Return a learner that has come back after the last of these rounds, their files and a journal of them.

    The model of round r holds r / 10.
    """
    made, checkpoints = mind(half), Checkpoints(folder, layouts())
    digests = {}
    for round in rounds:
        made.state.model.fill_(round / 10)
        saved = made.save(checkpoints, round)
        digests[round] = (saved.model.digest, saved.state_digest)
    made.load(checkpoints, rounds[-1], digests[rounds[-1]])
    return made, checkpoints, Books(digests)


class Books:
    """A journal that knows digests."""

    def __init__(self, digests: Mapping[int, tuple[str, str]]) -> None:
        self.known = digests

    def ask(self, question: Callable[[Any], Any]) -> Future[Any]:
        answer = Future[Any]()
        answer.set_result(question(self))
        return answer

    def digests(self, round: int) -> tuple[str, str] | None:
        return self.known.get(round)


@pytest.fixture(scope="module")
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.shut()


OTHERS = ("personal", "global-train")
BESIDE = (("personal", 2), ("global-train", 4))
SOME, MANY = (LocalData(torch.zeros(n, 1), torch.zeros(n, dtype=torch.long)) for n in (10, 40))


def scoring(
    threads: Threads, marks: Marks | None, others: Marks | None = None, *, blocking: bool = False
) -> tuple[Scoring, RoundTimes]:
    line, given = RoundTimes(), Tests(2, 9, blocking, beside=BESIDE if others else ())
    result: Any = marks
    beside: Any = others
    testers = Testers(result, SOME, beside, MANY) if marks else None
    return Scoring(testers, given, line, threads, MARKING), line


def result_of(
    of: Scoring, test: TestModel, model: Learner, checkpoints: Any = None, books: Any = None
) -> Tested | TestFailed:
    return asyncio.run(of.test(test, model, checkpoints, books))


OWN = ("global", Summary(0.5, 2.0, 10, worst_tenth=0.5))


def test_the_model_of_a_commit_is_tested_also_when_the_state_has_moved_on(threads: Threads) -> None:
    marks, model = Marks(), mind()
    of, line = scoring(threads, marks)
    of.take(1, model)
    assert marks.loaded == []  # not every round
    assert of.take(2, model) == [TestModel(2)]
    assert of.take(2, model) == [TestModel(2)]  # a commit that is tried again
    assert (marks.loaded, marks.held) == ([0.5], 1)
    model.state.model.fill_(0.9)
    found = result_of(of, TestModel(2), model)
    assert marks.held == 0
    assert isinstance(found, Tested)
    assert (found.round, found.scores) == (2, (OWN,))
    assert 0 <= line.take()[2]["evaluate_busy"] < time.monotonic()


def test_a_test_that_a_crash_has_cut_off_is_of_the_state_as_it_is_or_as_the_disk_has_it(
    threads: Threads, tmp_path: Path
) -> None:
    marks, others = Marks(), Marks()
    of, _ = scoring(threads, marks, others)
    come = back(Both, tmp_path, 2, 4, 5)
    for test in (TestModel(5), TestModel(4, OTHERS), TestModel(2)):
        assert isinstance(result_of(of, test, *come), Tested)
    assert marks.loaded == pytest.approx([0.5, 0.2])
    assert others.loaded == pytest.approx([0.25, 0.75, 0.4])
    assert float(come[0].state.model[0]) == 0.5  # which has not moved
    for path in tmp_path.rglob("model.safetensors"):
        path.write_bytes(b"torn")
    assert isinstance(result_of(of, TestModel(4), *come), TestFailed)
    assert isinstance(result_of(of, TestModel(3), *come), TestFailed)  # of which nothing is kept
    assert (marks.held, others.held) == (0, 0)


def test_where_the_round_waits_for_its_test_no_busy_seconds_stand_beside_it(threads: Threads) -> None:
    of, line = scoring(threads, Marks(), blocking=True)
    of.take(2, model := mind())
    result_of(of, TestModel(2), model)
    assert line.take() == {}


def test_other_models_are_tested_apart_of_a_copy_and_summed_up_by_their_name(threads: Threads) -> None:
    """Before the state moves on they are copied, and no more; the global one then on training data."""
    marks, others = Marks(), Marks()
    of, _ = scoring(threads, marks, others)
    model = mind(Both)
    assert of.take(4, model) == [TestModel(4), TestModel(4, OTHERS)]
    assert (marks.loaded, others.loaded, others.held) == ([0.5], [], 1)
    model.state.model.fill_(0.9)
    found = result_of(of, TestModel(4, OTHERS), model)
    assert isinstance(found, Tested)
    group = ("personal", Summary(0.5, 2.0, 20, 2, 0.25, 0.25))
    assert (found.models, found.scores) == (
        OTHERS,
        (group, ("global-train", Summary(0.5, 2.0, 40, worst_tenth=0.5))),
    )
    assert (marks.held, others.held) == (1, 0)


def test_without_a_global_model_there_is_no_score_of_it(threads: Threads) -> None:
    of, _ = scoring(threads, Marks())
    of.take(2, model := mind(NoneOfAll))
    found = result_of(of, TestModel(2), model)
    assert isinstance(found, Tested)
    assert found.scores == ()


def test_without_an_evaluator_nothing_is_taken(threads: Threads) -> None:
    of, _ = scoring(threads, None)
    assert of.take(2, mind()) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such\n  layer"), "ValueError: no such layer"),
        (KeyError(), "KeyError"),
        (UsageError("the file is gone"), "the file is gone"),
        (RuntimeError("x" * 999), f"RuntimeError: {'x' * 300}"),
    ],
)
@pytest.mark.parametrize("models", [("global",), OTHERS])
def test_what_a_model_raises_is_said_in_a_line(
    threads: Threads, models: tuple[str, ...], error: Exception, words: str
) -> None:
    marks = Marks()
    marks.error = error
    of, _ = scoring(threads, marks, marks) if models == OTHERS else scoring(threads, marks)
    model = mind(Both)
    test = TestModel(4, models)
    of._taken[test] = of._take(test, model.half, model.state)
    found = result_of(of, test, model)
    assert isinstance(found, TestFailed)
    assert (found.round, found.models, found.reason) == (4, models, words)
    assert (marks.held, of._taken) == (0, {})  # nothing of it is left


def test_clients_scores_are_those_of_the_counted_members_by_the_models_names() -> None:
    good, poor = ClientScore("client_local", 10, 8, 0.5), ClientScore("client_local", 30, 12, 1.5)
    pooled = replace(good, model="client_pooled")
    outcomes = [Outcome(seat, b"", Verdict.COUNTED) for seat in (0, 1, 2)] + [Outcome(3, b"", Verdict.LATE)]
    told: dict[int, tuple[ClientScore, ...]] = {0: (good,), 1: (poor, pooled), 2: ()}
    found = ClientScores.of(MARKING, {**told, 3: (good,)}, outcomes)
    assert {
        seat: {name: one.value for name, one in mine.items()} for seat, mine in found.by_seat.items()
    } == {
        0: {"client_local": 0.8},
        1: {"client_local": 0.4, "client_pooled": 0.8},
    }
    assert {name: (one.value, one.members, one.samples) for name, one in found.summaries().items()} == {
        "client_local": (pytest.approx(0.6), 2, 40),
        "client_pooled": (0.8, 1, 10),
    }
    said = found.announcements(3)
    assert [(one.name, one.fields["model"], one.fields["members"], one.written) for one in said] == [
        ("evaluated", "client_local", 2, True),
        ("evaluated", "client_pooled", 1, True),
    ]
    assert isinstance(said[0], Announce)
