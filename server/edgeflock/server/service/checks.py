"""A spooled update's header: what is kept of it, and what can be read of that again."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.package import Package
from edgeflock.common.scores import Score
from edgeflock.common.wire.messages import package_from_wire
from edgeflock.v1 import aggregator_pb2 as pb


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
