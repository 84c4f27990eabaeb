"""One client's part in one run: asks the session what to do and does it, over any number of connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, assert_never

import structlog

from edgeflock.client.deciding import session
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.deciding.session import Decision, Pending, Situation, Stage
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.keeping.models import Shelf
from edgeflock.client.link.contact import Contact
from edgeflock.client.link.line import Line
from edgeflock.client.protocol import (
    Generation,
    Interrupted,
    Quarantine,
    ServerRefused,
    Task,
    Unreached,
    View,
)
from edgeflock.client.saving import Saver
from edgeflock.client.training.desk import Desk
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.reason import Reason

PROGRESS_EVERY_S = 5.0
LEAVING_S = 2.0  # that a client which is told to go waits for its reports


class Participation:
    """What a client has of a run: its desk, what it keeps, the job at hand, what the server said last."""

    def __init__(
        self, client_id: str, desk: Desk, kept: Kept, backoff: Backoff, shelf: Shelf | None = None
    ) -> None:
        self.run_id = kept.run_id
        self._desk, self._kept = desk, kept
        self._contact = Contact(backoff, desk)
        self._random = backoff.random
        self._log = structlog.get_logger(__name__).bind(client_id=client_id)
        self._changed = asyncio.Event()
        self._saver = Saver(shelf, desk, kept, backoff, self._changed.set) if shelf is not None else None
        self._view: View | None = None  # none yet on this line
        self._quarantine: Quarantine | None = None
        self._entered = False
        self._told: Generation | None = None  # on this line, outside the views: the last update that counted
        self._ready = False
        self._sat = False  # that the data are there was said before
        self._answered: frozenset[int] = frozenset()
        self._fault, self._times = "", 0  # of the tasks refused last, in a row
        self._refused: int | None = (
            None  # the round whose task this client could not do, as long as it is asked
        )
        self._pending: Pending | None = None
        self._job: asyncio.Task[None] | None = None
        self._training: Task | None = None  # if that is the job
        self._asking = Backoff(backoff.random, first_s=1.0, most_s=60.0)  # for an update that is early
        self._reporter: asyncio.TimerHandle  # while a training goes on

    @property
    def work(self) -> tuple[int, int, int] | None:
        """The round that is trained now, the steps that are done and all; None: none is."""
        if self._job is None or self._training is None:
            return None
        return self._training.round, self._desk.progress.done, self._desk.progress.total

    @property
    def sat(self) -> bool:
        """Whether it was ready in this run: it had a seat, and what the run needs."""
        return self._sat

    @property
    def hears(self) -> bool:
        """Whether the server has said something on this line."""
        return self._view is not None

    # -------------------------------------------------------------------------------- the connection

    def enter(self, epoch: int) -> None:
        """Begin, or go on after a new Join."""
        self._kept.epoch = epoch
        self._kept.check()
        entry = self._kept.entry
        if entry is None:
            self._pending = None
        elif not self._entered:
            self._desk.resume(entry.cost, int(entry.package.scalars["steps"]))
        self._entered = True
        self._adopt()

    def see(self, view: View, line: Line) -> None:
        """Take the server's newest view; with the first one the line can be used."""
        if view.quarantine != self._quarantine:
            self._say(view.quarantine)
        if self._contact.attach(line):  # what the server was told in an earlier session is told again
            self._ready, self._told = False, None
            self._pending = replace(self._pending, stage=Stage.WAITING) if self._pending else None
            self._answered = frozenset()  # a server that asks again came back from an older state
        self._answered = session.still_asked(self._answered, view)
        self._view, self._quarantine = session.corrected(view, self._told), view.quarantine
        if self._pending:
            self._pending = session.seen(self._pending, view)
        if (
            self._refused is not None and view.asked != self._refused
        ):  # asked once more, it is tried once more
            self._answered -= {self._refused}
            self._refused = None
        if self._saver is not None:
            self._saver.see(view, line)
        self._changed.set()

    def _say(self, quarantine: Quarantine | None) -> None:
        """Tell whoever looks after the device why it has nothing to do, and when that is over."""
        if quarantine is None:
            self._log.info("released")
        else:
            self._log.warning("quarantined", until_round=quarantine.until_round, reason=quarantine.reason)

    def detach(self) -> None:
        """The line is gone; the job at hand goes on and waits for the next one where it needs it."""
        self._view = None
        self._contact.detach()
        if self._saver is not None:
            self._saver.detach()

    async def stop(self) -> None:
        """Stop the job at hand, if there is one, as soon as it can be stopped."""
        job, self._job = self._job, None
        if job and not job.done():
            self._desk.stop()
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        self._adopt()  # it may have come as far as the outbox

    async def close(self) -> None:
        """Stop all that goes on, and what comes back of the run."""
        await self.stop()
        if self._saver is not None:
            await self._saver.stop()

    async def leave(self) -> None:
        """Stop, and tell what is owed while there is still somebody to tell it to."""
        await self.close()
        self._contact.tell_owed()
        await self._contact.told(LEAVING_S)

    def _adopt(self) -> None:
        """Take note of an update that is kept."""
        entry = self._kept.entry
        if entry is not None and self._pending is None:
            closing, made_from = not entry.package.sections, entry.description.made_from
            self._pending = Pending(entry.round, entry.package.digest, closing=closing, made_from=made_from)
            self._asking.reset()

    # -------------------------------------------------------------------------------- deciding and acting

    async def act(self, line: Line) -> session.Finish:
        """Do what is to be done until the run is over, and return why; raises what breaks the line."""
        line.lost.add_done_callback(lambda _: self._changed.set())
        while True:
            self._changed.clear()
            self._collect()
            decision = session.decide(self._situation(self._view)) if self._view else session.Wait()
            if isinstance(decision, session.Finish):
                await self._contact.close(lambda: self._desk.settle(0))
                return decision
            if isinstance(decision, session.Wait):
                await self._something(line)
            else:
                await self._do(decision, line)

    async def _something(self, line: Line) -> None:
        """Wait until something has changed; raises what broke the line, when all before has been seen to."""
        if line.lost.done() and not self._changed.is_set():
            line.lost.result()
        await self._changed.wait()

    def _collect(self) -> None:
        """Look at a job that has ended; raises what this client cannot go on with."""
        if self._job and self._job.done():
            job, self._job = self._job, None
            job.result()

    def _situation(self, view: View) -> Situation:
        return Situation(
            view=view,
            pending=self._pending,
            generations=self._kept.generations(),
            candidate=self._kept.candidate,
            forgotten=self._kept.forgotten,
            ready=self._ready,
            training=self._training if self._job else None,
            delivering=self._job is not None and self._training is None,
            saving=self._saver is not None and self._saver.busy,
            answered=self._answered,
        )

    async def _do(self, decision: Decision, line: Line) -> None:
        match decision:
            case session.Promote(update):
                await self._settle(update.round, update)
                self._answered |= {update.round}
            case session.Discard(round, reason):
                await self._settle(round, reason=reason)
            case session.Rewind(keep):
                self._rewind(keep)
            case session.Forget(update):
                self._kept.forget(update)
            case session.Prepare(seat):
                await self._prepare(seat, line)
            case session.Deliver():
                self._start(self._deliver())
            case session.Train(task):
                self._start(self._train(task), training=task)
            case session.Abandon(round):
                await self.stop()
                self._log.info("round_abandoned", round=round)
            case session.Wait() | session.Finish():
                pass
            case _:
                assert_never(decision)

    async def _settle(self, round: int, update: Generation | None = None, reason: str = "") -> None:
        """Move the state by the final word, then forget the update; a crash in between repeats both."""
        await self.stop()
        entry, counted = self._kept.settle(update), update is not None
        self._fault = "" if counted else self._fault
        self._pending = None
        self._contact.owe(self._desk.settle(round))
        samples, train_s = (entry.description.samples, entry.cost.train_s) if entry else (0, 0.0)
        done = {"samples": samples, "train_s": float(f"{train_s:.3f}")}
        why = {"reason": reason} if reason else {}
        sent = self._contact.take_sent_bytes()
        self._log.info("update_settled", round=round, counted=counted, **why, **done, bytes_up=sent)

    def _rewind(self, keep: int) -> None:
        if self._kept.rewind(keep):
            self._log.warning("state_went_back", to_round=keep)

    async def _prepare(self, seat: int, line: Line) -> None:
        """Get the data of the seat, once, and tell the server of this session."""
        member = await self._desk.sit(seat, self._kept)
        self._log.info("ready", seat=seat, samples=member.samples, new=not self._sat)
        try:
            await line.ready(
                member.samples,
                member.class_counts,
                self._desk.layout_digest,
                self._desk.augment,
                self._desk.tuning,
                self._desk.task,
            )
        except Unreached:
            if self._view is None or self._view.ending is None:
                raise
            return  # the server went away, but not without having said that the run is over
        self._ready = self._sat = True

    # -------------------------------------------------------------------------------- jobs

    def _start(self, work: Coroutine[Any, Any, None], *, training: Task | None = None) -> None:
        self._training = training
        self._job = asyncio.create_task(work)
        self._job.add_done_callback(lambda _: self._changed.set())

    async def _train(self, task: Task) -> None:
        self._tell_later(task.round)
        try:
            await self._desk.train(task, self._kept, self._contact.fetch)
        except ServerRefused as refused:  # the round may have ended meanwhile: the next view will tell
            self._log.info("fetch_refused", round=task.round, reason=str(refused))
            await asyncio.sleep(Backoff(self._random).next_s(retry_after_ms=refused.retry_after_ms))
        except Interrupted as error:  # taken again when there is a line
            self._log.info("slot_given_back", round=task.round, reason=str(error))
        except EdgeflockError as error:
            self._refuse(task.round, error)
        except (RuntimeError, MemoryError) as error:  # of torch: out of memory, a model that does not fit
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self._refuse(task.round, EdgeflockError(f"training failed: {reason}"))
        finally:
            self._reporter.cancel()
            self._ready = self._ready and not self._desk.has_news  # else the server is told of them
        self._adopt()

    def _refuse(self, round: int, error: EdgeflockError) -> None:
        """Say that this client cannot do the task; the round goes on without it."""
        self._answered |= {round}
        self._refused = round
        self._times = self._times + 1 if str(error) == self._fault else 1
        self._fault = str(error)
        if self._times & (self._times - 1) == 0:  # a log with a mistake: the 1st, 2nd, 4th, 8th time
            again = {"times": self._times} if self._times > 1 else {}
            self._log.error("task_refused", round=round, reason=self._fault, **again)
        self._contact.refuse(round, error)

    async def _deliver(self) -> None:
        entry = self._kept.entry
        if entry is None or self._pending is None:
            return
        payload = self._kept.open_payload()
        try:
            with self._desk.delivering():
                settlement = await self._contact.deliver(entry, payload)
        except ServerRefused as refused:
            self._not_taken(self._pending, refused)
            return
        except EdgeflockError as error:
            self._kept.drop(str(error))
            self._pending = None
            return
        finally:
            os.close(payload)
        if settlement is None:
            self._pending = replace(self._pending, stage=Stage.DELIVERED)
        elif self._view:  # the view at hand may still name the task
            self._answered |= {settlement.round}
            self._told = entry.generation if settlement.counted and entry.candidate else self._told
            view = session.corrected(self._view, self._told)
            self._view = replace(view, settled=(*view.settled, settlement))

    def _not_taken(self, pending: Pending, refused: ServerRefused) -> None:
        """Believe a refusal, except that of a server which has not come as far as the round yet."""
        past = self._kept.is_former or (self._view and session.is_past(pending.round, self._view))
        if refused.reason is not Reason.NO_SUCH_TASK:
            self._answered |= {pending.round}
        elif not past:
            self._wait_early(pending, refused)
            return
        self._pending = replace(pending, refused=str(refused))

    def _wait_early(self, pending: Pending, refused: ServerRefused) -> None:
        """Offer it again when a view shows its round, and now and then, less and less often."""
        if not self._asking.attempts:
            self._log.warning("update_waits", round=pending.round, reason=str(refused))
        self._pending = replace(pending, stage=Stage.EARLY)
        asked = self._view is not None and self._view.asked == pending.round  # it has come so far meanwhile
        delay_s = (Backoff(self._random) if asked else self._asking).next_s()
        asyncio.get_running_loop().call_later(delay_s, self._offer_again, pending.digest)

    def _offer_again(self, digest: bytes) -> None:
        pending = self._pending
        if pending is not None and (pending.digest, pending.stage) == (digest, Stage.EARLY):
            self._pending = replace(pending, stage=Stage.WAITING)
            self._changed.set()

    # -------------------------------------------------------------------------------- reports

    def _tell_later(self, round: int) -> None:
        """Tell how far a training is, every few seconds until its end cancels it."""
        loop = asyncio.get_running_loop()
        self._reporter = loop.call_later(PROGRESS_EVERY_S, self._tell_progress, round)

    def _tell_progress(self, round: int) -> None:
        progress, desk = self._desk.progress, self._desk
        if progress.total:
            self._contact.progress(
                round,
                done=progress.done,
                total=progress.total,
                cpu_s=desk.cpu_s,
                temperature_c=desk.temperature_c,
            )
        self._tell_later(round)
