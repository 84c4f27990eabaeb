"""What is said of decisions in the transaction that makes them durable: no crash comes between the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeflock.common.scores import Metric
from edgeflock.server.core.decisions import (
    Conduct,
    Dropped,
    Ended,
    Paused,
    Placed,
    Record,
    Released,
    RoundClosed,
    Scored,
)
from edgeflock.server.core.effects import Announce
from edgeflock.server.core.testing import evaluated

Names = Mapping[int, str]  # client ids by seat


def of_record(record: Record, names: Names, trained: int, figure: Metric) -> tuple[Announce, ...]:
    """Return what is said of a decision: who is left out or in, what is cut short, paused or scored."""
    match record:
        case Conduct():
            return _quarantined((record,), names)
        case Released(seat=seat):
            return (_released(names[seat], "an operator trusts it again"),)
        case Dropped(seat=seat, client_id=client_id, round=round):
            return (_written("client_dropped", client=client_id, seat=seat, round=round),)
        case Placed(seat=seat, client_id=client_id, round=round, before=before):
            told = {"client": client_id, "seat": seat, "round": round}
            if before in ("", client_id):
                return (_written("client_added", **told),)
            return (_written("client_replaced", before=before, **told),)
        case RoundClosed(round=round, limit=limit) if limit:
            counted = [names[seat] for seat in record.counted]
            return (_written("round_cut", round=round, counted=counted, reason=limit),)
        case Paused(on=True, round=round):
            return (_written("pause_asked", round=round),)
        case Scored(round=round, scores=scores):
            return tuple(evaluated(round, model, found, figure) for model, found in scores)
        case Ended(kind=kind, reason=reason, round=round):
            ended = _written("run_ended", kind=str(kind), reason=reason, round=trained)
            discarded = _written("round_discarded", round=round, reason=reason)
            return (discarded, ended) if record.discarded else (ended,)
        case _:
            return ()


def of_commit(
    conduct: Iterable[Conduct], released: Iterable[int], round: int, names: Names
) -> tuple[Announce, ...]:
    """Return whom a round puts into quarantine, and whose quarantine ends with it."""
    why = f"its quarantine ends with round {round}"
    return *_quarantined(conduct, names), *(_released(names[seat], why) for seat in released)


def _quarantined(conduct: Iterable[Conduct], names: Names) -> tuple[Announce, ...]:
    return tuple(
        _written(
            "client_quarantined",
            client=names[one.seat],
            until=one.until,
            refused=one.refused,
            reason=one.reason,
        )
        for one in conduct
        if one.until
    )


def _released(client_id: str, why: str) -> Announce:
    return _written("client_released", client=client_id, reason=why)


def _written(name: str, **fields: object) -> Announce:
    return Announce(name, fields, written=True)
