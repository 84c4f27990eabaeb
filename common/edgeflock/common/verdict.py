"""Verdict: the final word on an update, the same on both ends and in the journal."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """Why an update counts or not; the names of the wire's reasons, the words of the journal."""

    COUNTED = "counted"
    LATE = "late"
    NON_FINITE = "non_finite"
    MALFORMED = "malformed"
    DISCARDED = "discarded"
    REFUSED_BY_CLIENT = "refused_by_client"
    QUARANTINED = "quarantined"
