"""What operators wish of a run: to pause, go on or end, and who has a seat. Pure.

A seat stays, with its shard, its random numbers and its books; what changes is who has it.
"""

from __future__ import annotations

from edgeflock.server.core.decisions import Dropped, Paused, Placed
from edgeflock.server.core.effects import Effect, Persist
from edgeflock.server.core.events import AddAsked, DropAsked, ReplaceAsked
from edgeflock.server.core.roster import Roster
from edgeflock.server.core.round import RoundMachine
from edgeflock.server.core.rules import Rules

Change = AddAsked | DropAsked | ReplaceAsked


class Wishes:
    """The words of a run's operators."""

    def __init__(self) -> None:
        self.paused = False  # the journal has it so
        self.stopping = ""  # a reason to end the run, as the journal has it
        self._pause = False  # the last word
        self._due = 0  # words that are on their way to the journal
        self._resuming = False  # the last word is to be followed by what a resume does

    def recall(self, *, paused: bool, stop: str) -> None:
        """The journal holds this of the lives before."""
        self.paused = self._pause = paused
        self.stopping = stop

    def heeds(self, *, pause: bool) -> bool:
        """Whether the last word was this, and the journal has it."""
        return self.paused == pause and not self._due

    def ask_to_pause(self, round: int) -> list[Effect]:
        return self._say(pause=True, round=round)

    def ask_to_resume(self, round: int) -> list[Effect]:
        """Write it down, unless it is known; what a resume does comes when `resumes` says so."""
        self._resuming = True
        return self._say(pause=False, round=round)

    def _say(self, *, pause: bool, round: int) -> list[Effect]:
        """Write a word down, unless it is what is known or on its way."""
        if pause == self._pause:
            return []
        self._pause = pause
        return self._write(round)

    def _write(self, round: int) -> list[Effect]:
        self._due += 1
        return [Persist((Paused(self._pause, round),))]

    def take(self, record: Paused, round: int) -> list[Effect]:
        """A word is durable; return what is to be written now, if a full disk has held this one back for
        longer than the last."""
        self._due -= 1
        self.paused = record.on
        return [] if self._due or record.on == self._pause else self._write(round)

    def resumes(self) -> bool:
        """Whether what a resume does is to be done now; once for each time that it was asked for."""
        if self._due or not self._resuming:
            return False
        self._resuming = False
        return True


class Staffing:
    """The operator's say in the roster of a run."""

    def __init__(self, rules: Rules, roster: Roster) -> None:
        self._rules, self._roster = rules, roster

    def record(self, asked: Change, current: RoundMachine, round: int) -> Dropped | Placed | str:
        """Return what is to be written, or why it cannot be; `round` is at hand, or else the next."""
        if fault := self._never():
            return fault
        match asked:
            case AddAsked():
                return self._add(asked.client_id, round)
            case DropAsked():
                return self._drop(asked.client_id, current, round)
            case ReplaceAsked():
                return self._replace(asked.client_id, asked.by, round)

    def _never(self) -> str:
        """Return why nobody can be added to this run or taken out of it."""
        if self._rules.central:
            return f"{self._rules.method} trains on the server: this run has no clients"
        if self._rules.script:
            return "--cohort-script names who takes part: its clients stay"
        if not self._rules.online and not self._roster.names:
            return "the roster is not complete: until then a client takes a seat by coming"
        return ""

    # ------------------------------------------------------------------------------------ one change

    def _drop(self, client_id: str, current: RoundMachine, round: int) -> Dropped | str:
        seat = self._roster.seat_of.get(client_id)
        if seat is None or seat in self._roster.changing:
            return self._no_seat(client_id)
        left = len(self._roster.able(round) - {seat})
        least = max(self._rules.min_updates, self._rules.least)
        if left < least and self._roster.free() is None:
            flag = "--min-updates" if least == self._rules.min_updates else "--cohort"
            return (
                f"without {client_id} there would be {left} of at least {least} clients ({flag}): replace it"
            )
        if not current.can_spare(seat):
            return f"round {round} cannot come to {current.least} updates without {client_id}: replace it"
        return Dropped(seat, client_id, round, kept=seat in current.received)

    def _replace(self, client_id: str, by: str, round: int) -> Placed | str:
        seat = self._roster.seat_had(client_id)
        if seat is None or seat in self._roster.changing:
            return self._no_seat(client_id)
        return self._known(by) or Placed(seat, by, round, client_id)

    def _add(self, client_id: str, round: int) -> Placed | str:
        roster = self._roster
        back, vacant = self._roster.seat_had(client_id), roster.vacant.keys() - roster.changing.keys()
        if back in vacant:
            return Placed(back, client_id, round, client_id)
        if fault := self._known(client_id):
            return fault
        if vacant:
            return Placed(min(vacant), client_id, round, roster.names[min(vacant)])
        if (seat := roster.free()) is not None:
            return Placed(seat, client_id, round)
        if self._rules.no_more_seats:
            return (
                f"all {roster.seats} seats are taken, and there can be no more: {self._rules.no_more_seats}"
            )
        return Placed(max(roster.seats, 1 + max(roster.coming.values(), default=0)), client_id, round)

    def _known(self, client_id: str) -> str:
        """Return why an id cannot be given a seat."""
        seat = self._roster.seat_had(client_id)
        if seat in self._roster.vacant:
            return f"{client_id} was dropped from seat {seat}: 'add --client {client_id}' gives it back"
        taken = seat is not None or client_id in self._roster.coming
        return f"{client_id} has a seat in this run" if taken else ""

    def _no_seat(self, client_id: str) -> str:
        return f"{client_id} has no seat in this run; seated are {self._roster.told()}"
