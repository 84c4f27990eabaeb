"""The target of a run: an accuracy of the global model that ends it (DESIGN rule 11). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from edgeflock.common.errors import BadValue, UnknownName

MEASURES = ("accuracy",)


@dataclass(frozen=True)
class Target:
    """What the global model is to reach; without an accuracy there is no target."""

    accuracy: float | None = None

    def __bool__(self) -> bool:
        return self.accuracy is not None

    def reached(self, round: int, accuracy: float | None) -> str:
        """Return why the run ends with that round; empty if it does not."""
        if self.accuracy is None or accuracy is None or accuracy < self.accuracy:
            return ""
        return f"the target is reached: accuracy {accuracy:.4f} of {self.accuracy:g} in round {round}"

    def raised(self, before: Target) -> bool:
        """Whether it is higher than it was, or gone."""
        return (before.accuracy or math.inf) < (self.accuracy or math.inf)


def parse(texts: Mapping[str, str]) -> Target:
    """Return the target. Raises UnknownName or BadValue with a sentence."""
    for name in texts:
        if name not in MEASURES:
            raise UnknownName("target", name, MEASURES)
    return Target(_accuracy(texts["accuracy"]) if "accuracy" in texts else None)


def _accuracy(text: str) -> float:
    try:
        accuracy = float(text)
    except ValueError:
        accuracy = 0.0
    if not 0 < accuracy <= 1:
        raise BadValue("--target accuracy", text, "an accuracy in (0, 1]")
    return accuracy
