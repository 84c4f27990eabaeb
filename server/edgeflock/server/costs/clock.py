"""The simulated clock: the seconds of a round, drawn from the run's seed instead of measured. Pure.

With it runs of any method end at the same budget of time, on any machine, in a fraction of it.
c, the seconds of a local step, and b, those of a round beside its steps, are normal and never below `LEAST`;
c of a round is the mean of as many draws as it has steps. Means and deviations are those of the prototype of
Wang et al. 2019 (arXiv:1804.05271) with SGD; with other means the deviations keep their proportion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgeflock.common import seeds
from edgeflock.common.command.kinds import seconds
from edgeflock.common.errors import BadValue

REAL, SIMULATED = "real", "simulated"
_WORDS = "real, simulated, or simulated:c=13ms,b=0.13: seconds, c > 0 of a step, b >= 0 of a round beside"
_BLOCK = 1 << 16  # so that a round of very many steps needs no memory
LEAST = 1e-10  # seconds: nothing is for free


@dataclass(frozen=True)
class Normal:
    """A duration."""

    mean: float
    deviation: float

    def around(self, mean: float) -> Normal:
        """Return the same with another mean, in proportion."""
        return Normal(mean, self.deviation * mean / self.mean if self.mean else 0.0)

    def draw(self, generator: np.random.Generator, count: int = 1) -> float:
        """Return so many of them together."""
        if not self.mean:
            return 0.0
        total = 0.0
        for begun in range(0, count, _BLOCK):
            drawn = generator.normal(self.mean, self.deviation, min(_BLOCK, count - begun))
            total += float(np.maximum(LEAST, drawn).sum())
        return total


_FEDERATED = {"c": Normal(0.0130, 0.0069), "b": Normal(0.1316, 0.0539)}
_CENTRAL = {"c": Normal(0.00997, 0.0119), "b": Normal(0.0, 0.0)}


@dataclass(frozen=True)
class Clock:
    """c and b of a run."""

    step: Normal
    round: Normal
    once: bool = False  # c is one draw in a round: runs of an earlier edgeflock

    def __str__(self) -> str:
        """Return the text of which `parse` makes it again."""
        once = ",draws=round" if self.once else ""
        return f"{SIMULATED}:c={self.step.mean!r},b={self.round.mean!r}{once}"

    def drawn(self, seed: int, round: int, steps: int) -> tuple[float, float]:
        """Return what the steps of a round take together, and what the rest of it takes."""
        if self.once:
            generator = seeds.numpy_generator(seed, "fedadm clock", round)
            return steps * self.step.draw(generator), self.round.draw(generator)
        generator = seeds.numpy_generator(seed, "clock", round)
        rest = self.round.draw(generator)  # first: the same whatever the steps
        return self.step.draw(generator, steps), rest


def parse(text: str, *, central: bool = False) -> Clock | None:
    """Return the clock that is meant, None where time is measured; `central`: no client is contacted.

    Raises BadValue with a sentence.
    """
    if text == REAL:
        return None
    usual = _CENTRAL if central else _FEDERATED
    try:
        given = _given(text)
        once = given.pop("draws", "step") == "round"
        means = {name: _written(seconds(value)) for name, value in given.items()}
        step, round = (usual[name].around(means.pop(name, usual[name].mean)) for name in ("c", "b"))
    except (ValueError, KeyError):
        raise BadValue("--clock", text, _WORDS) from None
    if means or not (0 < step.mean < math.inf and 0 <= round.mean < math.inf):
        raise BadValue("--clock", text, _WORDS)
    return Clock(step, round, once)


def _written(number: float) -> float:
    """Return the number that is meant: 13ms is 0.013, of which 13 times a thousandth is a digit off."""
    return float(f"{number:.12g}")


def _given(text: str) -> dict[str, str]:
    """Return the parts of what stands behind the colon; raises ValueError."""
    kind, colon, rest = text.partition(":")
    found: dict[str, str] = {}
    for part in rest.split(",") if colon else []:
        name, _, value = part.partition("=")
        if name in found:
            raise ValueError(text)
        found[name] = value
    if kind != SIMULATED or found.get("draws", "round") != "round":
        raise ValueError(text)
    return found
