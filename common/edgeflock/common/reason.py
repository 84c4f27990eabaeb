"""Reasons: why something was refused, the same on both ends; whoever refuses adds a sentence."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why something was refused; the names of the wire's reasons."""

    VERSION = "version"
    BAD_CLIENT_ID = "bad_client_id"
    DUPLICATE_ID = "duplicate_id"
    ROSTER_FULL = "roster_full"
    UNKNOWN_SESSION = "unknown_session"
    NO_SUCH_PACKAGE = "no_such_package"
    NO_SUCH_TASK = "no_such_task"
    MALFORMED = "malformed"
    WRONG_LAYOUT = "wrong_layout"
    WRONG_CODEC = "wrong_codec"
    TOO_LARGE = "too_large"
    BAD_TRANSFER = "bad_transfer"
    NO_SPACE = "no_space"
    BUSY = "busy"
    DRAINING = "draining"
    TOO_SLOW = "too_slow"
    LATE = "late"
    NON_FINITE = "non_finite"
    DISCARDED = "discarded"
    SUPERSEDED = "superseded"
    REFUSED_BY_CLIENT = "refused_by_client"
    FINISHED = "finished"
    WRONG_DATA = "wrong_data"
    QUARANTINED = "quarantined"
    WRONG_CERTIFICATE = "wrong_certificate"
    OTHER_CODE = "other_code"
