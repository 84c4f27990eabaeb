"""Which committed models are tested, what is known of the tests, and the score that ends a run. Pure.

The global model's test decides over a target. All others are made apart from it: nothing waits for them but
the end of the run, and the commit of a later round that is to have such tests, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgeflock.common.scores import ACCURACY, DEVICES, GLOBAL, GLOBAL_TRAIN, Metric, Summary
from edgeflock.server.core.decisions import Scored
from edgeflock.server.core.effects import Announce, Effect, TestModel
from edgeflock.server.core.target import Target

NO_SAMPLES = (
    "neither the server nor a client that was asked has test samples; fl-client --hold-out 0.2 keeps a share"
)


@dataclass(frozen=True)
class Tests:
    """What is tested and when, and the score that ends the run."""

    __test__ = False  # not a pytest class

    every: int = 0  # rounds; 0: never
    last: int = 0  # the last round of training
    blocking: bool = False  # the next round waits for the test
    clients: tuple[str, ...] = ()  # what clients test their own models on
    target: Target = field(default_factory=Target)
    beside: tuple[tuple[str, int], ...] = ()  # other models, each with its own number of rounds, from 1
    figure: Metric = ACCURACY  # by which models are judged
    here: bool = True  # the server has samples of its own
    devices: bool = False  # the devices test the global model that they receive
    stop_after: int = 0  # so many tests in a row without a better one end the run; 0: none do

    @property
    def name_on_devices(self) -> str:
        """What the test of the devices is called: that of the global model, where there is no other."""
        return DEVICES if self.here else GLOBAL

    @property
    def decisive(self) -> bool:
        """Whether a test of the global model may end the run."""
        return bool(self.target) or self.stop_after > 0

    @property
    def told_late(self) -> bool:
        """Whether a commit brings the test that may end the run: what follows is not known before."""
        return self.decisive and self.devices and not self.here

    def includes(self, round: int) -> bool:
        return self.every > 0 and (round % self.every == 0 or round == self.last)

    def wishes(self, round: int, *, last: bool) -> tuple[str, ...]:
        """Return what clients are asked to test in a round: own models, and the one that they receive."""
        own = self.clients if self.includes(round) or (last and self.every) else ()
        received = self.includes(round - 1) or (last and self.every)
        return (*own, DEVICES) if self.devices and (last or round > 1) and received else own

    def of(self, round: int, *, last: bool = False) -> list[TestModel]:
        """Return the tests of a committed round; `last`: no round of training is to come after it."""
        if not self.here or not round or not (self.includes(round) or (last and self.every > 0)):
            return []
        whole = last or round == self.last
        others = tuple(name for name, every in self.beside if whole or round % every == 0)
        return [TestModel(round), *([TestModel(round, others)] if others else [])]

    def known(self, test: TestModel) -> TestModel | None:
        """Return as much of a test as there still is: an operator may have asked for other models since."""
        there = {GLOBAL, *(name for name, _ in self.beside)} if self.every and self.here else set[str]()
        models = tuple(name for name in test.models if name in there)
        return TestModel(test.round, models) if models else None


class Testing:
    """The tests of a run: begun, and known, which is when the journal holds what they say."""

    __test__ = False  # not a pytest class

    def __init__(self, tests: Tests) -> None:
        self.tests = tests
        self.best: tuple[float, int] | None = None  # value of the figure, and round
        self.since = 0  # tests of the global model since then
        # Invariant: what is begun is of a committed round, and neither known nor failed.
        self.begun: set[TestModel] = set()
        self._over: dict[str, int] = {}  # by model: the newest round that has a score, or failed in this life

    def resume(self, known: Mapping[str, int], best: tuple[float, int] | None, since: int = 0) -> None:
        """The journal holds this of the lives before."""
        self._over, self.best, self.since = dict(known), best, since

    def begin(self, round: int, *, last: bool = False) -> list[Effect]:
        """Begin the tests of a committed round that it is to have and that were not begun before.

        `last`: no round of training is to come after it.
        """
        found: list[Effect] = []
        for test in self.tests.of(round, last=last):
            found += self._begin(round, tuple(name for name in test.models if not self._has(round, name)))
        return found

    def make_up(self, cut: Iterable[TestModel]) -> list[Effect]:
        """Begin tests of earlier rounds again that a crash has cut off."""
        return [test for one in cut for test in self._begin(one.round, one.models)]

    def _begin(self, round: int, models: tuple[str, ...]) -> list[Effect]:
        test = TestModel(round, models)
        if not models or test in self.begun:
            return []
        self.begun.add(test)
        return [test]

    def _has(self, round: int, model: str) -> bool:
        """Whether a model of the newest round is tested or being tested."""
        return round <= self._over.get(model, 0) or any(
            test.round == round and model in test.models for test in self.begun
        )

    def take(self, scored: Scored) -> None:
        """The journal holds these scores."""
        self._end(scored.round, scored.models)
        score = dict(scored.scores).get(GLOBAL)
        if score is None:
            return
        if self.best is None or self.tests.figure.better(score.value, self.best[0]):
            self.best, self.since = (score.value, scored.round), 0
        else:
            self.since += 1

    def fail(self, round: int, models: tuple[str, ...]) -> None:
        """There will be no scores of these in this life."""
        self._end(round, models)

    def _end(self, round: int, models: tuple[str, ...]) -> None:
        self.begun.discard(TestModel(round, models))
        self._over |= {name: max(round, self._over.get(name, 0)) for name in models}

    def decides(self, round: int) -> bool:
        """Whether it is not known yet if the run ends with that round."""
        return self.tests.decisive and TestModel(round) in self.begun

    def reached(self, scored: Scored) -> str:
        """Return why the run ends with these scores; empty if it does not."""
        return self.over_with(scored.round, dict(scored.scores).get(GLOBAL))

    def over_with(self, round: int, score: Summary | None) -> str:
        """Return why the run ends with a round of that score; empty if it does not."""
        return self.tests.target.reached(round, score, self.tests.figure) or self._out_of_patience()

    def _out_of_patience(self) -> str:
        if not self.tests.stop_after or self.best is None or self.since < self.tests.stop_after:
            return ""
        value, round = self.best
        name = self.tests.figure.name
        return f"no better {name} in {self.since} tests: {value:.4f} of round {round} is the best"

    @property
    def kept(self) -> set[int]:
        """Rounds whose checkpoints must stay: the best one, and those being tested."""
        return {*(test.round for test in self.begun), *([self.best[1]] if self.best else [])}


def evaluated(round: int, model: str, found: Summary, figure: Metric = ACCURACY) -> Announce:
    """Return what is said of an evaluation, in the transaction that writes it."""
    fields: dict[str, object] = {"round": round, "model": model}
    fields |= {figure.name: found.value, "loss": found.loss, **found.others}
    if figure != ACCURACY:
        fields |= {"figure": figure.name, "higher": figure.higher}
    if found.members > 1 or model not in (GLOBAL, GLOBAL_TRAIN):
        group = {"members": found.members, "deviation": found.deviation, "worst_tenth": found.worst_tenth}
        fields |= group
    return Announce("evaluated", fields, written=True)
