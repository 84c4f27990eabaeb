"""The target of a run: a metric of the global model that ends it (DESIGN rule 11). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeflock.common.errors import BadValue, UnknownName, UsageError
from edgeflock.common.scores import ACCURACY, LOSS, Metric, Summary

_SIGNS = {True: ">", False: "<"}  # by whether more is better


@dataclass(frozen=True)
class Target:
    """What the global model is to reach; without a limit there is no target."""

    limit: float | None = None
    metric: Metric = ACCURACY

    def __bool__(self) -> bool:
        return self.limit is not None

    def __str__(self) -> str:
        return f"{self.metric.name} {self.limit:g}" if self else "none"

    def met(self, value: float | None) -> bool:
        """Whether a value is as good as is wanted."""
        return self.limit is not None and value is not None and not self._misses(value, self.limit)

    def _misses(self, value: float, limit: float) -> bool:
        return math.isnan(value) or self.metric.better(limit, value)

    def reached(self, round: int, score: Summary | None, figure: Metric = ACCURACY) -> str:
        """Return why the run ends with that round; empty if it does not."""
        value = None if score is None else score.of(self.metric.name, figure.name)
        if value is None or not self.met(value):
            return ""
        found = f"{value:.4f} of {self.limit:g} in round {round}"
        return f"the target is reached: {self.metric.name} {found}"

    def raised(self, before: Target) -> bool:
        """Whether it is higher than it was, or gone."""
        if before.limit is None:
            return False
        if self.limit is None or self.metric.name != before.metric.name:
            return True
        return self.metric.better(self.limit, before.limit)


def parse(texts: Mapping[str, str], measures: Sequence[Metric] = (ACCURACY, LOSS)) -> Target:
    """Return the target, of one of these metrics. Raises a UsageError with a sentence."""
    if len(texts) > 1:
        raise UsageError(f"--target names {' and '.join(map(plain, texts))}: give one of them")
    known = {metric.name: metric for metric in measures}
    for text, limit in texts.items():
        name, sign = plain(text), text[len(plain(text)) :]
        if name not in known:
            raise UnknownName("target", name, known)
        metric = known[name]
        if sign not in ("", _SIGNS[metric.higher]):
            better = "more" if metric.higher else "less"
            raise BadValue(
                "--target",
                f"{text}={limit}",
                f"{name}{_SIGNS[metric.higher]}=X: of {name} {better} is better",
            )
        return Target(_limit(metric, limit), metric)
    return Target()


def plain(name: str) -> str:
    """Return the name of a target's metric without the sign of its direction."""
    return name.rstrip("<>")


def _limit(metric: Metric, text: str) -> float:
    allowed = f"{'an' if metric.name[0] in 'aeiou' else 'a'} {metric.name} in (0, 1]"
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if metric.share and not 0 < limit <= 1:
        raise BadValue(f"--target {metric.name}", text, allowed)
    if not math.isfinite(limit):
        raise BadValue(f"--target {metric.name}", text, "a number")
    return limit
