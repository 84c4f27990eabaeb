"""What is shown of a run while it goes on: a line for each round, sentences, and below them the moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from edgeflock.common.command.terminal import Line, Terminal, text_of
from edgeflock.common.scores import ACCURACY
from edgeflock.server.console import live
from edgeflock.server.console.live import Moment
from edgeflock.server.console.rows import Row, Rows
from edgeflock.server.console.sentences import is_known, sentence
from edgeflock.v1 import control_pb2 as pb

_DRAWN_S = 0.1  # between two drawings of the moment, at least
_QUIET_S = 60.0  # after which a pipe is told of the moment, too
_HINDERED = {  # what an operator should not overlook
    "run_paused": "warning",
    "budget_unmeasured": "warning",
    "clients_missed": "warning",
    "client_quarantined": "warning",
    "updates_rejected": "warning",
    "evaluation_failed": "warning",
    "task_refused": "warning",
    "refused": "warning",
    "round_discarded": "warning",
    "certificate": "warning",
    "caution": "warning",
    "code_differs": "warning",
    "operations_not_counted": "warning",
    "run_broken": "error",
    "epoch_raised": "error",
}
# Told by the lines of rounds and the moment, or by the table at the end.
_SHOWN_ELSEWHERE = (
    "run_started",
    "round_opened",
    "last_round_opened",
    "round_committed",
    "last_round_committed",
    "evaluated",
    "clients_seated",
    "client_ready",
    "run_ended",
)
_NO_TASK = "REASON_NO_SUCH_TASK"
_FAREWELLS = {"client_left", "client_leaving"}


def _is_usual(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether it is an update that came as its round was over: only who goes on so has something wrong."""
    return name == "refused" and fields.get("reason") == _NO_TASK and fields.get("times") == 1


class Display:
    """One run on one terminal. For one thread, or whoever holds a lock around it."""

    def __init__(
        self,
        terminal: Terminal,
        untold: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.terminal, self.start = terminal, ""
        self.values: list[float] = []
        self._untold, self._clock = {*_SHOWN_ELSEWHERE, *untold}, clock
        self._rows = Rows(0, 1)
        self._newest = 0  # the last round that has its line
        self._words = ""
        self._status: pb.StatusResponse | None = None
        self._taken = self._began = self._drawn = self._spoke = clock()

    def expect(
        self, rounds: int, eval_every: int, figure: str = ACCURACY.name, *, untrained: bool = False
    ) -> None:
        """Take note of what rounds there will be, and by what their models are judged; `untrained`: of each
        round what it begins with, for nothing more comes of it."""
        self._rows = Rows(rounds, eval_every, figure, behind=int(untrained))

    # ------------------------------------------------------------------------------- lines that stay

    def take(self, name: str, fields: Mapping[str, Any]) -> None:
        """Show an event: as a round's line, or in a sentence."""
        for row in self._rows.take(name, fields):
            self._show(row)
        if name == "run_ended":
            self._untold |= _FAREWELLS
        if name not in self._untold and is_known(name) and not _is_usual(name, fields):
            self.tell(sentence(name, fields), _HINDERED.get(name, ""))

    @property
    def behind(self) -> bool:
        """Whether a round is done that has no line yet: its test is being made."""
        return bool(self._rows.waiting)

    def tell(self, words: str, style: str = "") -> None:
        """Write what has happened, and when."""
        self._spoke = self._clock()
        self.terminal.tell(words, style)

    def say(self, line: Line, indent: int = 0) -> None:
        self._spoke = self._clock()
        self.terminal.say(line, indent)

    def close(self) -> None:
        """No more is to come: show what has waited, and take the moment away."""
        for row in self._rows.rest():
            self._show(row)
        self._words, self._status = "", None
        self.terminal.show(())

    def _show(self, row: Row) -> None:
        if row.value is not None:
            self.values.append(row.value)
        self._newest = max(self._newest, row.round)
        self.say(row.line(self.terminal.width))

    # ------------------------------------------------------------------------------- the moment

    def wait(self, words: str) -> None:
        """Say what is waited for, as long as there is no status to tell more."""
        if words != self._words:
            self._words, self._status, self._began = words, None, self._clock()
        self.draw()

    def look(self, status: pb.StatusResponse) -> None:
        """Take what the server says of this moment."""
        if self._status is None or live.kind(status) != live.kind(self._status):
            self._began = self._clock()
        self._status, self._taken = status, self._clock()
        self.draw()

    def draw(self) -> None:
        """Show the moment as it is now; on a pipe only what is waited for, and what takes long."""
        now = self._clock()
        if self.terminal.moves:
            if now - self._drawn >= _DRAWN_S:
                self._drawn = now
                self.terminal.show(self._line(now, (self.terminal.width or 80) - 1))
        elif now - self._spoke >= _QUIET_S and self._line(now, None):
            self.remind()

    def remind(self) -> None:
        """Tell a pipe of the moment now."""
        if not self.terminal.moves:
            self.say([(text_of(self._line(self._clock(), None)), "")])

    def _line(self, now: float, width: int | None) -> Line:
        if self._status is None:
            waited = f"  {live.seconds(now - self._began)}"
            return [(self._words, "live"), (waited, "dim")] if self._words else ()
        status, since = self._status, now - self._began
        if status.HasField("open"):
            if status.open.round <= self._newest:  # it is of a moment ago
                return ()
            since = status.open.elapsed_s + now - self._taken
        unicode = self.terminal.unicode
        return live.line(Moment(status, since, self.values, self.start, unicode), width)
