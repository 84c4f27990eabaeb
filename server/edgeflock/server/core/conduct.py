"""How clients behave: bad updates counted for each, and who takes no part for a while after too many."""

from __future__ import annotations

from collections.abc import Iterable

from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Conduct, Outcome
from edgeflock.server.core.rules import Rules

_BAD = (Verdict.NON_FINITE, Verdict.MALFORMED)  # verdicts that speak against a client


class ConductBook:
    """The conduct of the clients of a run, as decided and as the journal has it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.seats = rules.clients  # that somebody has
        # Invariant: who has a durable conduct has a decided one, which is the same or a later one.
        self._decided: dict[int, Conduct] = {}  # what the next decision goes by
        self._durable: dict[int, Conduct] = {}  # what may be spoken of

    def take(self, conduct: Iterable[Conduct]) -> None:
        """The journal holds this."""
        for one in conduct:
            self._durable[one.seat] = one
            self._decided.setdefault(one.seat, one)

    def known(self, seat: int) -> Conduct | None:
        """Return what may be said of a client's bad updates, if it has sent any."""
        return self._durable.get(seat)

    def quarantine(self, seat: int, round: int) -> Conduct | None:
        """Return why a client takes no part in that round, as far as may be said; None if it may."""
        known = self.known(seat)
        return known if known is not None and self._holds(known, round) else None

    def held(self, round: int) -> set[int]:
        """Return who takes no part in that round."""
        return {seat for seat, one in self._decided.items() if self._holds(one, round)}

    def released_after(self, round: int) -> list[int]:
        """Return whose quarantine ends with that round."""
        return sorted(seat for seat, one in self._decided.items() if one.until == round)

    def _holds(self, conduct: Conduct, round: int) -> bool:
        return bool(self._rules.quarantine_after) and conduct.until >= round

    # ------------------------------------------------------------------------------ decisions

    def offence(self, seat: int, reason: str, round: int) -> Conduct | None:
        """Count one more bad update; return what is to be written of it, if anything is."""
        before = self._decided.get(seat) or Conduct(seat, 0, 0, 0, "")
        if not self._rules.quarantine_after or self._holds(before, round):
            return None
        refused, row, until = before.refused + 1, before.row + 1, 0
        if row >= self._rules.quarantine_after and self._can_spare_one(round):
            row, until = 0, round + self._rules.quarantine_rounds
        now = self._decided[seat] = Conduct(seat, refused, row, until, reason)
        # What no quarantine ends could go on for ever: it is written ever more seldom.
        return now if row <= self._rules.quarantine_after or row & (row - 1) == 0 else None

    def _can_spare_one(self, round: int) -> bool:
        return self.seats - len(self.held(round)) > self._rules.min_updates

    def settle(self, round: int, outcomes: Iterable[Outcome]) -> tuple[Conduct, ...]:
        """Draw the conclusions from the final verdicts of a round; return what is to be written with them."""
        return tuple(now for item in outcomes if (now := self._settle(round, item)) is not None)

    def _settle(self, round: int, outcome: Outcome) -> Conduct | None:
        before = self._decided.get(outcome.seat)
        if outcome.verdict in _BAD:
            return self.offence(outcome.seat, str(outcome.verdict), round)
        if outcome.verdict is not Verdict.COUNTED or before is None or not before.row:
            return None
        now = self._decided[before.seat] = _forgiven(before)
        return now

    def release(self, seat: int) -> None:
        """An operator trusts it again, and the journal says so."""
        for known in (self._decided, self._durable):
            if (one := known.get(seat)) is not None:
                known[seat] = _forgiven(one)

    def forget(self, seat: int) -> None:
        """Somebody else has it now."""
        for known in (self._decided, self._durable):
            known.pop(seat, None)


def _forgiven(conduct: Conduct) -> Conduct:
    return Conduct(conduct.seat, conduct.refused, 0, 0, conduct.reason)
