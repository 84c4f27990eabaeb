"""Refusals: what each reason is on the wire, whether it passes by itself, and whether it is an offence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog

from edgeflock.common.reason import Reason
from edgeflock.common.wire.messages import REASONS, REASONS_BACK
from edgeflock.server.core.refusal import Refused
from edgeflock.v1 import aggregator_pb2 as pb

log = structlog.get_logger()

# Nothing is lost, and the same again may succeed (DESIGN rule 7); every other reason is final.
TEMPORARY = frozenset(
    (
        Reason.UNKNOWN_SESSION,
        Reason.BAD_TRANSFER,
        Reason.NO_SPACE,
        Reason.BUSY,
        Reason.DRAINING,
        Reason.TOO_SLOW,
    )
)
# What only a client that is out of order sends, or a link that changes bytes: too many in a row lead to
# quarantine. A cut, a full disk, a round that is over or not known here can happen to everybody.
OFFENCES = frozenset(
    (
        Reason.MALFORMED,
        Reason.WRONG_LAYOUT,
        Reason.WRONG_CODEC,
        Reason.TOO_LARGE,
        Reason.BAD_TRANSFER,
    )
)
_MOST_NAMES, _LONGEST_NAME, _LONGEST_SENTENCE = 10_000, 64, 500

UNKNOWN_SESSION = Refused(Reason.UNKNOWN_SESSION, "this server does not know your session: join again")


def to_wire(refused: Refused) -> pb.Refusal:
    """Return a refusal as a message."""
    return pb.Refusal(
        reason=REASONS[refused.reason],
        sentence=refused.sentence[:_LONGEST_SENTENCE],
        temporary=refused.reason in TEMPORARY,
        retry_after_ms=refused.retry_after_ms,
    )


def from_wire(message: pb.Refusal) -> Refused:
    """Return what a message says of a refusal, without what this version does not know."""
    reason = REASONS_BACK.get(message.reason, Reason.BUSY)
    return Refused(reason, message.sentence, message.retry_after_ms)


class RefusalCount:
    """How often whom what was refused; the 1st, 2nd, 4th, 8th ... of a kind is written down."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.times: Counter[tuple[str, Reason]] = Counter()  # by client or peer
        self._note = note

    def add(self, who: str, refused: Refused) -> None:
        key = (who[:_LONGEST_NAME] if len(self.times) < _MOST_NAMES else "others", refused.reason)
        self.times[key] += 1
        times = self.times[key]
        if times & (times - 1) == 0:
            fields = {
                "client": key[0],
                "reason": f"REASON_{refused.reason.name}",
                "sentence": refused.sentence[:_LONGEST_SENTENCE],
                "times": times,
            }
            log.warning("refused", **fields)
            self._note("refused", **fields)
