"""The intake: the one door to a run for whoever takes part in it or looks after it, in the run's own values.

What somebody may do is decided here and said as a value; how it is said over a wire is not known here.
Everything is asked on the event loop, and nothing here waits for a disk there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from edgeflock.common.errors import JournalBroken
from edgeflock.common.payload.package import Scope
from edgeflock.common.reason import Reason
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome, Placed
from edgeflock.server.core.events import (
    DrainAsked,
    Offended,
    Offline,
    Online,
    PauseAsked,
    Ready,
    ReleaseAsked,
    ResumeAsked,
    StopAsked,
    TaskRefused,
)
from edgeflock.server.core.refusal import Refused
from edgeflock.server.core.wishes import Change
from edgeflock.server.costs.rows import Row
from edgeflock.server.costs.traffic import Traffic
from edgeflock.server.engine import opening
from edgeflock.server.engine.checks import Unfit, check_package, check_scores
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.results import Results
from edgeflock.server.engine.transfer import Download, Header, ResultDownload, Slot, undone
from edgeflock.server.engine.views import ClientView, RunStatus, status_of, view_of
from edgeflock.server.files.packages import Broadcast

log = structlog.get_logger()

_RETRY_DRAINING_MS, _RETRY_OPENING_MS = 1000, 100
_GOING_DOWN = Refused(Reason.DRAINING, "the server is going down", _RETRY_DRAINING_MS)
_LONGEST_GOODBYE = 200  # characters


@dataclass(frozen=True)
class Settled:
    """The final word on an update."""

    round: int
    outcome: Outcome


class Intake:
    """What may be asked of a run. Clients are named by their ids, whatever connections they have."""

    def __init__(self, engine: Engine, parted: Iterable[str] = ()) -> None:
        """`parted` have said goodbye to a life of before in which the run ended."""
        self._engine, self._machine, self._means = engine, engine.machine, engine.means
        self._told: set[str] = set()  # who was told how the run ended, and may have heard
        self._parted = set(parted)  # who has heard: it said goodbye after that
        self._heard = set[str]()  # of those, since somebody looked
        self._hearing = asyncio.Event()
        self._results = Results(self._machine, self._means)

    # ------------------------------------------------------------------------------- coming and going

    @property
    def over(self) -> bool:
        """Whether all that is left is to tell of the end."""
        return self._machine.ending is not None

    def join(self, client_id: str) -> Refused | None:
        """Whether somebody may come, or come again."""
        machine = self._machine
        if machine.draining and machine.ending is None:
            return _GOING_DOWN
        if machine.rules.central:
            words = f"{machine.rules.method} trains on the server: this run takes no clients"
            return Refused(Reason.ROSTER_FULL, words)
        return self.dismissed(client_id) or self._roster_full(client_id)

    def dismissed(self, client_id: str) -> Refused | None:
        """Whether an operator has taken it out of the run: for it that is over."""
        roster = self._machine.roster
        if (one := roster.dismissed.get(client_id)) is None:
            return None
        how = "you were dropped" if one.seat in roster.vacant else f"{roster.names[one.seat]} has your seat"
        return Refused(Reason.FINISHED, f"the run is over for you: {how}, by its operator")

    def online(self, client_id: str) -> Refused | None:
        """It listens from now on, unless the seats went since it joined."""
        if refused := self.dismissed(client_id) or self._roster_full(client_id):
            return refused
        self._engine.post(Online(client_id, time.monotonic()))
        return None

    def offline(self, client_id: str, *, replaced: bool) -> None:
        """It listens no more; `replaced`: as far as is known, it is about to listen again."""
        self._engine.post(Offline(client_id, time.monotonic()))
        if replaced or client_id in self._told:  # then it says goodbye itself
            return
        log.info("client_left", client=client_id)
        self.note("client_left", client=client_id)

    def leave(self, client_id: str, reason: str) -> None:
        """It goes, and says so."""
        words = {"client": client_id, "reason": reason[:_LONGEST_GOODBYE]}
        log.info("client_leaving", **words)
        self.note("client_leaving", **words)
        if not self.seated(client_id):
            if client_id not in self._machine.roster.dismissed:
                self._means.bookkeeping.traffic.strike(client_id)
        elif client_id in self._told and self._names_the_end(reason):
            self._part(client_id)
        self._engine.post(Offline(client_id, time.monotonic()))

    def _names_the_end(self, reason: str) -> bool:
        """Whether it has read the ending: who is shut down before that comes back to hear it."""
        ending = self._machine.ending
        return ending is not None and reason == ending.reason[:_LONGEST_GOODBYE]

    def told(self, client_id: str) -> None:
        """The view that says how the run ended is on its way to it: whether it comes, nobody knows."""
        self._told.add(client_id)
        if self._machine.rules.central:  # there is no way between
            self._part(client_id)

    def _part(self, client_id: str) -> None:
        """It knows how the run ended, and has said all that it had to say."""
        if client_id not in self._parted:
            self._engine.accompany(self._write_parting(self._machine.roster.seat_of[client_id]))
        self._parted.add(client_id)
        self._heard.add(client_id)
        self._hearing.set()

    async def _write_parting(self, seat: int) -> None:
        with contextlib.suppress(JournalBroken):  # after a start it would be waited for once more
            await asyncio.wrap_future(self._means.journal.parted(seat))

    async def farewell(self) -> None:
        """Wait until all who have a seat have heard how the run ended."""
        left = set(self._machine.roster.seat_of) - self._parted
        while left:
            await self._hearing.wait()
            self._hearing.clear()
            left -= self._heard
            self._heard.clear()

    def seated(self, client_id: str) -> bool:
        """Whether it has a seat."""
        return client_id in self._machine.roster.seat_of

    @property
    def free(self) -> int:
        """How many seats nobody has yet."""
        return self._machine.roster.seats - len(self._machine.roster.names)

    def _roster_full(self, client_id: str) -> Refused | None:
        if self._machine.roster.has_room_for(client_id):
            return None
        return Refused(Reason.ROSTER_FULL, f"all {self._machine.roster.seats} seats of this run are taken")

    # ------------------------------------------------------------------------------- rounds

    def view(self, client_id: str, saves: str = "") -> ClientView:
        """Return all that a client may know now, with the model that it `saves`, if there is one."""
        return view_of(self._engine, client_id, saves)

    async def result(
        self, client_id: str, round: int, scope: Scope, *, counted: bool = True
    ) -> ResultDownload | Refused | None:
        """Return the model after a round as that client keeps it, or its base, if it is offered."""
        if (seat := self._machine.roster.seat_of.get(client_id)) is None:
            return None
        try:
            results = self._results
            found = await (results.base(round) if scope is Scope.BASE else results.package(round, seat))
        except OSError as error:
            return undone(self._engine, "write the model", error)
        if found is None:
            return None
        traffic = self._traffic(client_id, counted=True) if counted else None
        return ResultDownload(self._engine, self._results, found, traffic)

    def still_s(self, since: float) -> float:
        """Return for how long nothing of a result has been sent, since some instant at most."""
        return time.monotonic() - max(since, self._results.moved_at)

    async def download(
        self, client_id: str, round: int, scope: Scope, *, counted: bool = True
    ) -> Download | Refused | None:
        """Return a package of the client's task, if it has one in that round, or why it cannot be made.

        If its bytes are not `counted`, whoever brings them to the client says what passed.
        """
        seat, opened = self._machine.roster.seat_of.get(client_id), self._engine.opened
        if opened is None or seat is None or round != opened.number or not self._machine.has_task(seat):
            return None
        match scope:
            case Scope.SHARED:
                found: Broadcast | None = opened.work.shared
            case Scope.OPTIONAL:
                found = opened.work.optional
            case Scope.RESULT:
                return None
            case Scope.BASE:
                found = opened.work.base
            case Scope.PERSONAL:
                try:
                    found = (
                        await opening.personal(self._means, opened, seat) if opened.work.personal else None
                    )
                except OSError as error:
                    return undone(self._engine, "write your package", error)
        if found is None:
            return None
        return Download(self._engine, opened, found, self._traffic(client_id, counted=counted))

    async def offer(
        self, client_id: str, header: Header, *, counted: bool = True
    ) -> Slot | Settled | Refused:
        """Return where an update goes, or the final word on it; `counted` as with a download."""
        seat = self._machine.roster.seat_of.get(client_id)
        if seat is None:
            return Refused(Reason.NO_SUCH_TASK, "you have no seat in this run")
        if (settled := await self._settled(seat, header)) is not None:
            return settled
        if isinstance(opened := self._wanted(seat, header), Refused):
            return opened
        try:
            entry = await opening.entry(self._means, opened, seat)
        except OSError as error:
            return undone(self._engine, "write your update", error)
        return Slot(self._engine, opened, seat, header, entry, self._traffic(client_id, counted=counted))

    async def _settled(self, seat: int, header: Header) -> Settled | Refused | None:
        """Return the final word on this very update, if its round has one."""
        machine, number, digest = self._machine, header.round, header.package.digest
        if number > machine.committed and machine.ending is None:
            return None
        if number > machine.round:
            return Refused(Reason.NO_SUCH_TASK, f"there is no round {number}")
        try:
            outcome = await self._means.verdicts.find(seat, number)
        except JournalBroken:  # it stays so until the next start
            return _GOING_DOWN
        if outcome is None:
            return Refused(Reason.NO_SUCH_TASK, f"you had no task in round {number}")
        if outcome.digest == digest:
            return Settled(number, outcome)
        # another update was counted, or none: this one never will be
        late = outcome.verdict if outcome.verdict is not Verdict.COUNTED else Verdict.LATE
        return Settled(number, Outcome(seat, digest, late))

    def _wanted(self, seat: int, header: Header) -> OpenRound | Refused:
        """Return the open round, if it wants this update or has it."""
        machine, number, opened = self._machine, header.round, self._engine.opened
        if machine.draining:
            return _GOING_DOWN
        if opened is None or opened.number != number:
            if number == machine.round:
                return Refused(Reason.BUSY, f"round {number} is being opened", _RETRY_OPENING_MS)
            return Refused(Reason.NO_SUCH_TASK, f"round {number} is not open")
        if (complete := opened.updates.get(seat)) is not None:
            if complete.package.digest == header.package.digest:
                return opened
            return Refused(Reason.LATE, f"another update of yours is complete in round {number}")
        if not machine.has_task(seat):
            return self._no_task(seat, number)
        if not opened.begat(header.described):
            words = f"your update of round {number} was made from another model than this round's"
            return Refused(Reason.NO_SUCH_TASK, words)
        try:
            check_package(header.package, opened.work.uploads, opened.work.scalars)
            check_scores(header.described.scores, self._means.scoring.marking)
        except Unfit as unfit:
            return Refused(unfit.reason, str(unfit))
        return opened

    def _no_task(self, seat: int, number: int) -> Refused:
        if (conduct := self._machine.quarantined(seat)) is None:
            return Refused(Reason.NO_SUCH_TASK, f"you have no task in round {number}")
        why = f"{conduct.refused} bad updates came from you, the last one {conduct.reason}"
        return Refused(Reason.QUARANTINED, f"you take no part up to and with round {conduct.until}: {why}")

    def _traffic(self, client_id: str, *, counted: bool) -> Traffic:
        """Return what counts somebody's bytes; those of the server's own part cross no wire."""
        book = self._means.bookkeeping.traffic
        return book.of(client_id) if counted and not self._machine.rules.central else Traffic()

    def admits(self, size_bytes: int) -> bool:
        """Whether so many bytes more may go to clients; if not, the round is over now."""
        return self._engine.admits(size_bytes)

    def bytes_left(self) -> float:
        """Return how many bytes more the run may move."""
        return self._means.bookkeeping.watch.bytes_left()

    # ------------------------------------------------------------------------------- what clients say

    def ready(self, client_id: str, samples: int, classes: Sequence[int] = ()) -> None:
        """It has its data, so many samples of each class, and waits for tasks."""
        seat = self._machine.roster.seat_of[client_id]
        told = {"classes": list(classes)} if classes else {}
        self.note("client_ready", client=client_id, seat=seat, samples=samples, **told)
        self._engine.post(Ready(seat, samples, time.monotonic()))

    def stated(self, client_id: str, round: int, costs: Row) -> None:
        """It says what a round took of which it has heard the final word, or is about to."""
        seat = self._machine.roster.seat_of.get(client_id)
        if seat is None or not self._means.bookkeeping.add_late(round, seat, costs):
            return
        if (opened := self._engine.opened) is not None and opened.number == round:
            opened.correct(seat, costs)  # the rows of a discarded round are written again at the end

    def refused(self, client_id: str, round: int, sentence: str) -> None:
        """It cannot do its task."""
        log.warning("task_refused", client=client_id, round=round, reason=sentence)
        self.note("task_refused", client=client_id, round=round, reason=sentence)
        self._engine.post(TaskRefused(round, self._machine.roster.seat_of[client_id], time.monotonic()))

    def offended(self, client_id: str, reason: Reason) -> None:
        """It has sent what no sound client sends."""
        if (seat := self._machine.roster.seat_of.get(client_id)) is not None:
            self._engine.post(Offended(seat, str(reason), time.monotonic()))

    def note(self, name: str, **fields: object) -> None:
        """Write something down for the journal's readers."""
        self._means.journal.note(name, **fields)

    # ------------------------------------------------------------------------------- what operators ask

    async def pause(self) -> bool:
        """Finish the open round and open no other until `resume`; return whether the journal says so."""
        self._engine.post(PauseAsked(time.monotonic()))
        return await self._engine.until(
            lambda: self._machine.wishes.heeds(pause=True) or self._machine.is_over
        )

    async def resume(self) -> bool:
        """Go on; return whether the journal says so."""
        self._engine.post(ResumeAsked(time.monotonic()))
        return await self._engine.until(
            lambda: self._machine.wishes.heeds(pause=False) or self._machine.is_over
        )

    async def stop(self, reason: str) -> bool:
        """End the run; return whether the journal says that it is to end."""
        self._engine.post(StopAsked(reason, time.monotonic()))
        return await self._engine.until(lambda: bool(self._machine.wishes.stopping) or self._machine.is_over)

    def drain(self) -> None:
        """Leave with the run as it is."""
        self._engine.post(DrainAsked(time.monotonic()))

    async def release(self, client_id: str) -> bool:
        """End a client's quarantine; return whether it was in one, and the journal says that it is over."""
        seat = self._machine.roster.seat_of.get(client_id)
        if seat is None or self._machine.quarantined(seat) is None:
            return False
        self._engine.post(ReleaseAsked(seat, time.monotonic()))
        return await self._engine.until(lambda: self._machine.quarantined(seat) is None)

    async def change(self, asked: Change) -> str | bool:
        """Change who has a seat; return why not, or whether the journal says so."""
        if self._machine.is_over:
            return "the run is over"
        record = self._machine.staffed(asked)
        if isinstance(record, str):
            return record
        self._engine.post(asked)
        roster = self._machine.roster
        written = await self._engine.until(lambda: record != roster.changing.get(record.seat))
        if written and isinstance(record, Placed) and record.before:
            self._means.bookkeeping.traffic.pass_on(record.before, record.client_id)
        return written

    def status(self) -> RunStatus:
        """Return where the run is, and everybody in it."""
        return status_of(self._engine)
