"""Who is left out for a while: bad updates counted for each client, and what follows from too many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeflock.server.core.decisions import Conduct, Outcome, Verdict
from edgeflock.server.core.effects import Announce
from edgeflock.server.core.rules import Rules

WORDS = ("client_quarantined", "client_released")
BAD = (Verdict.NON_FINITE, Verdict.MALFORMED)  # verdicts that speak against a client


class Quarantine:
    """The conduct of the clients of a run, as decided and as the journal has it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._decided: dict[int, Conduct] = {}  # what the next decision goes by
        self._durable: dict[int, Conduct] = {}  # what may be spoken of

    def take(self, conduct: Iterable[Conduct]) -> None:
        """The journal holds this."""
        for one in conduct:
            self._durable[one.seat] = one
            self._decided.setdefault(one.seat, one)

    def held(self, round: int) -> set[int]:
        """Return who takes no part in that round."""
        return {seat for seat, one in self._decided.items() if self._holds(one, round)}

    def told(self, seat: int) -> Conduct | None:
        """Return what may be said of a client's bad updates, if it has sent any."""
        return self._durable.get(seat)

    def keeps(self, seat: int, round: int) -> bool:
        """Whether a client takes no part in that round, and may know."""
        told = self.told(seat)
        return told is not None and self._holds(told, round)

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
        return self._rules.clients - len(self.held(round)) > self._rules.min_updates

    def settle(self, round: int, outcomes: Iterable[Outcome]) -> tuple[Conduct, ...]:
        """Draw the conclusions from the final words on a round; return what is to be written with them."""
        return tuple(now for item in outcomes if (now := self._settle(round, item)) is not None)

    def _settle(self, round: int, outcome: Outcome) -> Conduct | None:
        before = self._decided.get(outcome.seat)
        if outcome.verdict in BAD:
            return self.offence(outcome.seat, str(outcome.verdict), round)
        if outcome.verdict is not Verdict.COUNTED or before is None or not before.row:
            return None
        now = Conduct(before.seat, before.refused, 0, 0, before.reason)
        self._decided[before.seat] = now
        return now

    def release(self, seat: int) -> None:
        """An operator trusts it again, and the journal says so."""
        for known in (self._decided, self._durable):
            if (one := known.get(seat)) is not None:
                known[seat] = Conduct(seat, one.refused, 0, 0, one.reason)

    # ----------------------------------------------------------------------------------- words

    def words(self, conduct: Conduct, names: Mapping[int, str]) -> list[Announce]:
        """Return what is said of a decision: something only if it puts a client into quarantine."""
        if not conduct.until:
            return []
        fields = {"client": names[conduct.seat], "until": conduct.until, "refused": conduct.refused}
        return [Announce("client_quarantined", {**fields, "reason": conduct.reason})]

    def over(self, round: int, names: Mapping[int, str]) -> list[Announce]:
        """Return what is said when a round is over: whose quarantine ends with it."""
        ended = sorted(seat for seat, one in self._decided.items() if one.until == round)
        why = f"its quarantine ends with round {round}"
        return [Announce("client_released", {"client": names[seat], "reason": why}) for seat in ended]
