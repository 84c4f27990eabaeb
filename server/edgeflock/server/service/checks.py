"""What an update must be: a header checked against the task before a byte of it is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.package import Package
from edgeflock.common.scores import LOCAL, POOLED, Score
from edgeflock.common.wire.messages import package_from_wire
from edgeflock.server.learning.work import UploadSpec
from edgeflock.v1 import aggregator_pb2 as pb

_NEEDED = ("samples", "steps", "loss")  # scalars of every update
_MOST = 1 << 48  # samples or steps: they weight sums and are rows of the journal
_LARGEST = 3.4e38  # sums of such scalars stay finite


class Unfit(MalformedMessage):
    """The header is not that of the update the task asks for."""

    def __init__(self, reason: pb.Reason.ValueType, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def stored_header(header: pb.UpdateHeader) -> bytes:
    """Return what the spool keeps of a header: all that identifies the update, and the scores with it."""
    kept = pb.UpdateHeader(
        round=header.round, package=header.package, samples=header.samples, scores=header.scores
    )
    return kept.SerializeToString(deterministic=True)


def package_of(stored: bytes, round: int) -> Package | None:
    """Return the package of a spooled header, or None if it cannot be read or is of another round.

    After a power cut the spool of a round may hold what its files held two rounds before.
    """
    try:
        header = pb.UpdateHeader.FromString(stored)
        return package_from_wire(header.package) if header.round == round else None
    except (DecodeError, MalformedMessage):
        return None


def scores_of(stored: bytes) -> dict[str, Score]:
    """Return the scores of a spooled header, by name; they were checked when it came."""
    found = pb.UpdateHeader.FromString(stored).scores
    return {score.model: Score(score.hits / score.samples, score.loss, score.samples) for score in found}


def check_scores(scores: Sequence[pb.ClientScore]) -> None:
    """Raise Unfit unless every score can be one, and none is told twice."""
    for score in scores:
        if score.model not in (LOCAL, POOLED):
            raise Unfit(
                pb.REASON_MALFORMED, f"a score has the name {score.model[:40]!r}, known are {LOCAL}, {POOLED}"
            )
        counts = 0 < score.samples <= _MOST and score.hits <= score.samples
        if not counts or not math.isfinite(score.loss) or abs(score.loss) > _LARGEST:
            stated = f"{score.hits} hits of {score.samples} samples and loss {score.loss}"
            raise Unfit(pb.REASON_MALFORMED, f"the score {score.model} states {stated}")
    if len({score.model for score in scores}) < len(scores):
        raise Unfit(pb.REASON_MALFORMED, "a score is told twice")


def check_package(package: Package, wanted: Sequence[UploadSpec], scalars: Sequence[str] = ()) -> None:
    """Raise Unfit unless the package is exactly what the task dictates."""
    kinds = [section.kind for section in package.sections]
    if kinds != [spec.kind for spec in wanted]:
        names = ", ".join(spec.kind for spec in wanted) or "nothing"
        raise Unfit(
            pb.REASON_MALFORMED, f"the update holds {', '.join(kinds) or 'nothing'}, wanted is {names}"
        )
    for section, spec in zip(package.sections, wanted, strict=True):
        if section.layout_digest != spec.layout.digest or section.elements != spec.layout.elements:
            raise Unfit(
                pb.REASON_WRONG_LAYOUT,
                f"{spec.kind} with {section.elements} numbers has not the layout that the task names",
            )
        if section.codec != spec.codec:
            raise Unfit(
                pb.REASON_WRONG_CODEC, f"{spec.kind} has codec {section.codec}, wanted is {spec.codec}"
            )
        if section.size_bytes > spec.largest:
            raise Unfit(
                pb.REASON_TOO_LARGE,
                f"{spec.kind} has {section.size_bytes} bytes, at most {spec.largest} are allowed",
            )
    _check_scalars(package)
    if not wanted or package.scalars["steps"]:  # no step: no hook was called that could know them
        _check_presence(package, scalars)


def _check_presence(package: Package, names: Sequence[str]) -> None:
    for name in names:
        if name not in package.scalars:
            raise Unfit(pb.REASON_MALFORMED, f"the update lacks the scalar {name!r}")


def _check_scalars(package: Package) -> None:
    _check_presence(package, _NEEDED)
    for name in ("samples", "steps"):
        value = package.scalars[name]
        if not (0 <= value <= _MOST and value == int(value)):
            raise Unfit(
                pb.REASON_MALFORMED, f"the scalar {name!r} is {value}, allowed is a whole number >= 0"
            )
    for name, value in package.scalars.items():  # NaN and infinity have a verdict of their own
        if math.isfinite(value) and abs(value) > _LARGEST:
            raise Unfit(pb.REASON_MALFORMED, f"the scalar {name!r} is {value}, beyond what float32 holds")
