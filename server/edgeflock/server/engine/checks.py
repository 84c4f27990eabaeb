"""What an update must be: held against what the round asks for before a byte of it is taken. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.package import Package
from edgeflock.common.reason import Reason
from edgeflock.common.scores import DEVICES, LOCAL, POOLED, ClientScore
from edgeflock.common.tasks.kit.marking import Marking
from edgeflock.server.learning.work import UploadSpec

_NEEDED = ("samples", "steps", "loss")  # scalars of every update
_MOST = 1 << 48  # samples or steps: they weight sums and are rows of the journal
_LARGEST = 3.4e38  # sums of such scalars stay finite


class Unfit(MalformedMessage):
    """It is not the update that the task asks for."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def check_scores(scores: Sequence[ClientScore], marking: Marking) -> None:
    """Raise Unfit unless every score can be one of the run's task, and none is told twice."""
    for score in scores:
        if score.model not in (LOCAL, POOLED, DEVICES):
            known = ", ".join((LOCAL, POOLED, DEVICES))
            raise Unfit(Reason.MALFORMED, f"a score has the name {score.model[:40]!r}, known are {known}")
        counts = 0 < score.samples <= _MOST and (score.hits <= score.samples or score.sums)
        if not counts or not math.isfinite(score.loss) or abs(score.loss) > _LARGEST:
            stated = f"{score.hits} hits of {score.samples} samples and loss {score.loss}"
            raise Unfit(Reason.MALFORMED, f"the score {score.model} states {stated}")
        try:
            marking.of_client(score)
        except ValueError as error:
            raise Unfit(Reason.MALFORMED, f"the score {score.model} states {error}") from error
    if len({score.model for score in scores}) < len(scores):
        raise Unfit(Reason.MALFORMED, "a score is told twice")


def check_package(package: Package, wanted: Sequence[UploadSpec], scalars: Sequence[str] = ()) -> None:
    """Raise Unfit unless the package is exactly what the task dictates."""
    kinds = [section.kind for section in package.sections]
    if kinds != [spec.kind for spec in wanted]:
        names = ", ".join(spec.kind for spec in wanted) or "nothing"
        raise Unfit(Reason.MALFORMED, f"the update holds {', '.join(kinds) or 'nothing'}, wanted is {names}")
    for section, spec in zip(package.sections, wanted, strict=True):
        if section.layout_digest != spec.layout.digest or section.elements != spec.layout.elements:
            raise Unfit(
                Reason.WRONG_LAYOUT,
                f"{spec.kind} with {section.elements} numbers has not the layout that the task names",
            )
        if section.codec != spec.codec:
            raise Unfit(Reason.WRONG_CODEC, f"{spec.kind} has codec {section.codec}, wanted is {spec.codec}")
        if section.size_bytes > spec.largest:
            raise Unfit(
                Reason.TOO_LARGE,
                f"{spec.kind} has {section.size_bytes} bytes, at most {spec.largest} are allowed",
            )
    _check_scalars(package)
    if not wanted or package.scalars["steps"]:  # no step: no hook was called that could know them
        _check_presence(package, scalars)


def _check_presence(package: Package, names: Sequence[str]) -> None:
    for name in names:
        if name not in package.scalars:
            raise Unfit(Reason.MALFORMED, f"the update lacks the scalar {name!r}")


def _check_scalars(package: Package) -> None:
    _check_presence(package, _NEEDED)
    for name in ("samples", "steps"):
        value = package.scalars[name]
        if not (0 <= value <= _MOST and value == int(value)):
            raise Unfit(Reason.MALFORMED, f"the scalar {name!r} is {value}, allowed is a whole number >= 0")
    for name, value in package.scalars.items():  # NaN and infinity have a verdict of their own
        if math.isfinite(value) and abs(value) > _LARGEST:
            raise Unfit(Reason.MALFORMED, f"the scalar {name!r} is {value}, beyond what float32 holds")
