"""How the learning rate changes over a run's rounds: constant or along a cosine, either after a warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from edgeflock.common.errors import BadValue
from edgeflock.common.tuning import phrase

FLAG = "--schedule"
WORDS = (
    "constant or cosine, either with warmup=ROUNDS, cosine also with floor=SHARE in [0, 1] and rounds=ROUNDS "
    "over which it falls, such as cosine:warmup=5,floor=0.1"
)
_CONSTANT, _COSINE = "constant", "cosine"


@dataclass(frozen=True)
class Schedule:
    """A factor on the learning rate for every round; `str()` gives the text that `parse` understands."""

    falls: bool = False  # along half a cosine, from the end of the warm-up on
    warmup: int = 0  # rounds before the whole rate
    floor: float = 0.0  # the share of it to which it falls
    rounds: int = 0  # over which it falls; 0: as many as the run has, which its first start settles

    def __str__(self) -> str:
        if self.falls:
            return f"{_COSINE}:warmup={self.warmup},floor={self.floor:g},rounds={self.rounds}"
        return f"{_CONSTANT}:warmup={self.warmup}" if self.warmup else _CONSTANT

    def over(self, rounds: int) -> Schedule:
        """Return the schedule of a run with so many rounds: one that has begun keeps its own number."""
        return replace(self, rounds=self.rounds or rounds) if self.falls else self

    def factor(self, round: int) -> float:
        """Return the share of the learning rate in a round, counted from 1."""
        if round <= self.warmup:
            return round / (self.warmup + 1)
        if not self.falls:
            return 1.0
        done = min(1.0, (round - 1 - self.warmup) / max(1, self.rounds - self.warmup))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


CONSTANT = Schedule()


def parse(text: str) -> Schedule:
    """Return what an operator writes. Raises BadValue."""
    word, given = phrase.split(FLAG, text, WORDS)
    if word not in (_CONSTANT, _COSINE):
        raise BadValue(FLAG, text, WORDS)
    names = ("warmup", "floor", "rounds") if word == _COSINE else ("warmup",)
    found = phrase.filled(FLAG, text, WORDS, Schedule(word == _COSINE), given, names)
    if found.warmup < 0 or found.rounds < 0 or not 0 <= found.floor <= 1:
        raise BadValue(FLAG, text, WORDS)
    if found.rounds and found.warmup >= found.rounds:
        raise BadValue(FLAG, text, f"a warm-up shorter than the {found.rounds} rounds over which it falls")
    return found
