"""One client's part in one run: asks the session what to do and does it, over any number of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, assert_never

import grpc
import structlog

from edgeflock.client.deciding import session
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.deciding.session import Decision, Generation, Pending, Situation, Stage, View
from edgeflock.client.jobs import Desk, deliver_outbox, train_round
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.keeping.statefile import Stamp
from edgeflock.client.keeping.store import Store
from edgeflock.client.link import answers
from edgeflock.client.link.account import Account, to_wire
from edgeflock.client.link.answers import Reason, ServerRefused
from edgeflock.client.link.contact import Contact, ask
from edgeflock.client.link.line import Line
from edgeflock.client.training.bench import Member, Progress
from edgeflock.client.training.meter import Meter
from edgeflock.client.training.setup import Setup
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.errors import EdgeflockError, LayoutMismatch
from edgeflock.v1 import aggregator_pb2 as pb

PROGRESS_EVERY_S = 5.0
LEAVING_S = 2.0  # that a client which is told to go waits for its reports


class Participation:
    """What a client has of a run: data, state, the update that is not settled, the job at hand."""

    def __init__(
        self,
        client_id: str,
        setup: Setup,
        trainer: Trainer,
        store: Store,
        outbox: Outbox,
        meter: Meter,
        backoff: Backoff,
    ) -> None:
        self.run_id = setup.run_id
        self._client_id = client_id
        self._setup = setup
        self._trainer = trainer
        self._store = store
        self._outbox = outbox
        self._meter = meter
        self._random = backoff.random
        self._log = structlog.get_logger(__name__).bind(client_id=client_id)
        self._contact = Contact(backoff)
        self._account = Account(meter, self._contact)
        self._changed = asyncio.Event()
        self._message = pb.View()
        self._view: View | None = None  # none yet on this line
        self._epoch = 0
        self._went_back = False
        self._ready = False
        self._answered: frozenset[int] = frozenset()
        self._pending: Pending | None = None
        self._staged: Generation | None = None  # the candidate of an update that is torn
        self._lost: Generation | None = None  # an update that was dropped with its torn candidate
        self._member: Member | None = None
        self._job: asyncio.Task[None] | None = None
        self._training: int | None = None
        self._progress = Progress()
        self._told = False  # that the data are there
        self._reporter: asyncio.TimerHandle  # while a training goes on

    @property
    def work(self) -> tuple[int, int, int] | None:
        """The round that is trained now, the steps that are done and all; None: none is."""
        if self._job is None or self._training is None:
            return None
        return self._training, self._progress.done, self._progress.total

    # -------------------------------------------------------------------------------- the connection

    def enter(self, epoch: int) -> None:
        """Begin, or go on after a new Join."""
        known = self._store.epoch()
        self._epoch = epoch
        if known is None:
            self._store.set_epoch(epoch)
        elif known != epoch:
            self._went_back, self._answered = True, frozenset()
        self._check_outbox()

    def see(self, message: pb.View, line: Line) -> None:
        """Take the server's newest view; with the first one the line can be used."""
        if message.quarantine != self._message.quarantine:
            self._say(message.quarantine)
        self._message, self._view = message, answers.view(message)
        if self._contact.attach(line):  # what the server was told in an earlier session is told again
            self._ready = False
            self._pending = replace(self._pending, stage=Stage.WAITING) if self._pending else None
            self._answered = frozenset()  # a server that asks again came back from an older state
            self._account.tell()
        if self._pending:
            self._pending = session.seen(self._pending, self._view)
        self._changed.set()

    def _say(self, quarantine: pb.Quarantine) -> None:
        """Tell whoever looks after the device why it has nothing to do, and when that is over."""
        if quarantine.until_round:
            self._log.warning("quarantined", until_round=quarantine.until_round, reason=quarantine.reason)
        else:
            self._log.info("released")

    def detach(self) -> None:
        """The line is gone; the job at hand goes on and waits for the next one where it needs it."""
        self._view = None
        self._contact.detach()

    async def stop(self) -> None:
        """Stop the job at hand, if there is one, as soon as it can be stopped."""
        job, self._job = self._job, None
        if job and not job.done():
            self._progress.stop.set()
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        self._adopt()  # it may have come as far as the outbox

    async def leave(self) -> None:
        """Stop, and tell what is owed while there is still somebody to tell it to."""
        await self.stop()
        self._account.tell()
        await self._contact.told(LEAVING_S)

    def _check_outbox(self) -> None:
        """Keep only an update of this run whose candidate state is there."""
        entry = self._outbox.entry
        if entry and entry.run_id != self.run_id:
            self._drop(entry, f"it belongs to run {entry.run_id}, the server has run {self.run_id}")
        elif entry and entry.candidate and not self._store.staged(Stamp(entry.round, entry.package.digest)):
            self._drop(entry, "its state is torn: the round is trained again")
            self._lost = Generation(entry.round, entry.package.digest)
        elif entry is None:
            self._staged = self._store.candidate()
        self._adopt()

    def _adopt(self) -> None:
        entry = self._outbox.entry
        if entry and entry.run_id == self.run_id and self._pending is None:
            closing = not entry.package.sections
            self._pending = Pending(entry.round, entry.package.digest, closing=closing)
            self._staged = self._lost = None

    def _drop(self, entry: OutboxEntry, reason: str) -> None:
        self._log.warning("outbox_discarded", round=entry.round, reason=reason)
        self._outbox.clear()
        self._pending = None

    # -------------------------------------------------------------------------------- deciding and acting

    async def act(self, line: Line) -> session.Finish:
        """Do what is to be done until the run is over, and return why; raises what breaks the line."""
        line.lost.add_done_callback(lambda _: self._changed.set())
        while True:
            self._changed.clear()
            self._collect()
            decision = session.decide(self._situation(self._view)) if self._view else session.Wait()
            if isinstance(decision, session.Finish):
                await self._account.close()
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
            generations=self._store.generations(),
            went_back=self._went_back,
            ready=self._ready,
            training=self._training if self._job else None,
            delivering=self._job is not None and self._training is None,
            staged=self._staged,
            lost=self._lost,
            answered=self._answered,
        )

    async def _do(self, decision: Decision, line: Line) -> None:
        match decision:
            case session.Promote(settlement):
                await self._settle(settlement.round, counted=True)
                self._answered |= {settlement.round}
            case session.Discard(round, reason):
                await self._settle(round, counted=False, reason=reason)
            case session.Rewind(keep):
                self._rewind(keep)
            case session.Forget(round):
                self._store.forget(f"the update of round {round} counted, the state after it is torn")
                self._lost = None
            case session.Prepare():
                await self._prepare(line)
            case session.Deliver():
                self._start(self._deliver())
            case session.Train(round):
                self._start(self._train(self._message.task), training=round)
            case session.Abandon(round):
                await self.stop()
                self._log.info("round_abandoned", round=round)
            case session.Wait() | session.Finish():
                pass
            case _:
                assert_never(decision)

    async def _settle(self, round: int, *, counted: bool, reason: str = "") -> None:
        """Move the state by the final word, then forget the update; a crash in between repeats both."""
        await self.stop()
        entry = self._outbox.entry
        samples, train_s = (entry.description.samples, entry.cost.train_s) if entry else (0, 0.0)
        if counted and (entry.candidate if entry else self._staged):
            self._store.promote()
        else:
            self._store.discard()
        self._outbox.clear()
        self._pending = self._staged = None
        cost = self._account.settle(round)
        done = {"samples": samples, "train_s": float(f"{train_s:.3f}"), "bytes_up": cost.bytes_up}
        why = {"reason": reason} if reason else {}
        self._log.info("update_settled", round=round, counted=counted, **why, **done)

    def _rewind(self, keep: int | None) -> None:
        if any(keep is None or kept.round > keep for kept in self._store.generations()):
            self._log.warning("state_went_back", to_round=keep or 0)
        self._store.rewind(keep)
        if self._went_back:
            self._store.set_epoch(self._epoch)
            self._went_back = False

    async def _prepare(self, line: Line) -> None:
        """Get the data of the seat, once, and tell the server of this session."""
        index = self._message.seat.index
        if self._member is None or self._member.index != index:
            self._member = await self._trainer.run(self._trainer.member, self._setup, self._client_id, index)
        ready = pb.Ready(
            samples=self._member.samples,
            class_counts=self._member.class_counts,
            layout_digest=self._setup.setting.layout.digest,
        )
        new, self._told = not self._told, True
        self._log.info("ready", seat=index, samples=self._member.samples, new=new)
        try:
            await ask(line, pb.ReportRequest(ready=ready))
        except grpc.aio.AioRpcError:
            if self._view is None or self._view.ending is None:
                raise
            return  # the server went away, but not without having said that the run is over
        self._ready = True

    # -------------------------------------------------------------------------------- jobs

    def _start(self, work: Coroutine[Any, Any, None], *, training: int | None = None) -> None:
        self._training = training
        self._progress = Progress()
        self._job = asyncio.create_task(work)
        self._job.add_done_callback(lambda _: self._changed.set())

    def _desk(self) -> Desk:
        if self._member is None:
            raise RuntimeError("a task came before the data were there")
        return Desk(self._setup, self._trainer, self._member, self._store, self._outbox, self._meter)

    async def _train(self, task: pb.Task) -> None:
        self._tell_later(task.round, self._progress)
        try:
            await train_round(self._desk(), task, self._progress, self._contact.attempt)
        except ServerRefused as refused:  # the round may have ended meanwhile: the next view will tell
            self._log.info("fetch_refused", round=task.round, reason=str(refused))
            await asyncio.sleep(Backoff(self._random).next_s(retry_after_ms=refused.retry_after_ms))
        except EdgeflockError as error:
            self._refuse(task.round, error)
        except (RuntimeError, MemoryError) as error:  # of torch: out of memory, a model that does not fit
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self._refuse(task.round, EdgeflockError(f"training failed: {reason}"))
        finally:
            self._reporter.cancel()
        self._adopt()

    async def _deliver(self) -> None:
        entry = self._outbox.entry
        if entry is None or self._pending is None:
            return
        previous = self._account.previous
        try:
            settlement = await deliver_outbox(
                self._outbox, self._meter, entry, to_wire(previous), self._contact.attempt
            )
        except ServerRefused as refused:
            await self._not_taken(self._pending, refused)
            return
        except EdgeflockError as error:
            self._drop(entry, str(error))
            return
        self._account.heard(previous)
        if settlement is None:
            self._pending = replace(self._pending, stage=Stage.DELIVERED)
        elif self._view:  # the view at hand may still name the task
            self._answered |= {settlement.round}
            self._view = replace(self._view, settled=(*self._view.settled, settlement))

    async def _not_taken(self, pending: Pending, refused: ServerRefused) -> None:
        """Believe a refusal, except that of a server which has not come as far as the round yet."""
        if refused.reason != Reason.REASON_NO_SUCH_TASK:
            self._answered |= {pending.round}
        elif not self._went_back and not (self._view and session.is_past(pending.round, self._view)):
            await asyncio.sleep(Backoff(self._random, first_s=1.0).next_s())
            return
        self._pending = replace(pending, refused=str(refused))

    # -------------------------------------------------------------------------------- reports

    def _tell_later(self, round: int, progress: Progress) -> None:
        """Tell how far a training is, every few seconds until its end cancels it."""
        loop = asyncio.get_running_loop()
        self._reporter = loop.call_later(PROGRESS_EVERY_S, self._tell_progress, round, progress)

    def _tell_progress(self, round: int, progress: Progress) -> None:
        if progress.total:
            said = pb.Progress(
                round=round,
                steps_done=progress.done,
                steps_total=progress.total,
                cpu_s=self._meter.cpu_s(progress.cpu_s),
                temperature_c=self._meter.probe.temperature_c,
            )
            self._contact.tell(pb.ReportRequest(progress=said))
        self._tell_later(round, progress)

    def _refuse(self, round: int, error: EdgeflockError) -> None:
        """Say that this client cannot do the task; the round goes on without it."""
        self._answered |= {round}
        self._log.error("task_refused", round=round, reason=str(error))
        reason = (
            Reason.REASON_WRONG_LAYOUT
            if isinstance(error, LayoutMismatch)
            else Reason.REASON_REFUSED_BY_CLIENT
        )
        refusal = pb.Refusal(reason=reason, sentence=str(error)[:500])
        self._contact.tell(pb.ReportRequest(refused=pb.TaskRefused(round=round, refusal=refusal)))
