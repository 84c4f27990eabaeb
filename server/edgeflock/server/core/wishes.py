"""What an operator wishes of a run: to pause, go on or end; as said last, and as the journal has it. Pure."""

from __future__ import annotations

from edgeflock.server.core.decisions import Paused
from edgeflock.server.core.effects import Effect, Persist


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
