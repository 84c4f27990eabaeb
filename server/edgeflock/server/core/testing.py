"""Which committed models are tested, what is known of the tests, and the score that ends a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeflock.common.scores import Summary
from edgeflock.server.core.decisions import Scored
from edgeflock.server.core.effects import Announce, Effect, TestModel
from edgeflock.server.core.target import Target

GLOBAL = "global"  # the model that targets and curves mean


@dataclass(frozen=True)
class Tests:
    """What is tested and when, and the score that ends the run."""

    __test__ = False  # not a pytest class

    every: int = 0  # rounds; 0: never
    last: int = 0  # the last round of training
    blocking: bool = False  # the next round waits for the test
    clients: tuple[str, ...] = ()  # what clients test their own models on
    target: Target = field(default_factory=Target)

    def includes(self, round: int) -> bool:
        return self.every > 0 and (round % self.every == 0 or round == self.last)

    def wishes(self, round: int, *, last: bool) -> tuple[str, ...]:
        """Return what clients are asked to test their own models on in a round."""
        return self.clients if self.includes(round) or (last and self.every) else ()


class Testing:
    """The tests of a run: begun, and known, which is when the journal holds what they say."""

    __test__ = False  # not a pytest class

    def __init__(self, tests: Tests) -> None:
        self.tests = tests
        self.best: tuple[float, int] | None = None  # accuracy and round
        # Invariant: what is begun is of a committed round, and neither known nor failed.
        self.begun: set[int] = set()
        self._known = 0  # the newest round whose scores the journal holds
        self._failed = 0  # the newest round whose test failed in this life

    def resume(self, known: int, best: tuple[float, int] | None) -> None:
        """The journal holds this of the lives before."""
        self._known, self.best = known, best

    def begin(self, round: int, *, last: bool = False) -> list[Effect]:
        """Begin the test of a committed round, unless there is none, or it is begun already.

        `last`: no round of training is to come after it.
        """
        wanted = self.tests.includes(round) or (last and self.tests.every > 0)
        if not round or not wanted or round in self.begun or round <= max(self._known, self._failed):
            return []
        self.begun.add(round)
        return [TestModel(round)]

    def take(self, scored: Scored) -> None:
        """The journal holds these scores."""
        self.begun.discard(scored.round)
        self._known = max(self._known, scored.round)
        score = dict(scored.scores).get(GLOBAL)
        if score is not None and (self.best is None or score.accuracy > self.best[0]):
            self.best = (score.accuracy, scored.round)

    def fail(self, round: int) -> None:
        """There will be no scores of that round in this life."""
        self.begun.discard(round)
        self._failed = max(self._failed, round)

    def decides(self, round: int) -> bool:
        """Whether it is not known yet if the run ends with that round."""
        return bool(self.tests.target) and round in self.begun

    def reached(self, scored: Scored) -> str:
        """Return why the run ends with these scores; empty if it does not."""
        score = dict(scored.scores).get(GLOBAL)
        return self.tests.target.reached(scored.round, score.accuracy if score else None)

    @property
    def kept(self) -> set[int]:
        """Rounds whose checkpoints must stay: the best one, and those being tested."""
        return {*self.begun, *([self.best[1]] if self.best else [])}


def evaluated(round: int, model: str, found: Summary) -> Announce:
    """Return what is said of an evaluation, in the transaction that writes it."""
    fields: dict[str, object] = {"round": round, "model": model}
    fields |= {"accuracy": found.accuracy, "loss": found.loss}
    if found.members > 1 or model != GLOBAL:
        group = {"members": found.members, "deviation": found.deviation, "worst_tenth": found.worst_tenth}
        fields |= group
    return Announce("evaluated", fields, written=True)
