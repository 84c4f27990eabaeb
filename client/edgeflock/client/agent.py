"""The agent of one hosted client: joins, watches, comes back after every trouble, until the run is over."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from random import Random

import grpc
import structlog

from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.deciding.session import Finish
from edgeflock.client.keeping.outbox import Outbox
from edgeflock.client.keeping.statedir import Unwritable
from edgeflock.client.keeping.store import Store
from edgeflock.client.link.answers import Reason, ServerRefused
from edgeflock.client.link.line import Line, Link
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.transfer import Interrupted
from edgeflock.client.link.trouble import in_words
from edgeflock.client.link.trust import Distrusted
from edgeflock.client.participation import Participation
from edgeflock.client.training.meter import Meter
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.wire.messages import run_from_wire
from edgeflock.common.wire.transport import PROTOCOL
from edgeflock.v1 import aggregator_pb2 as pb

JOIN_TIMEOUT_S = 20.0
LEAVE_TIMEOUT_S = 2.0
STEADY_S = 10.0  # a connection that lasted so long was a good one

_REJOIN = (Reason.REASON_UNKNOWN_SESSION, Reason.REASON_SUPERSEDED)
_OTHERS = (Reason.REASON_DUPLICATE_ID, Reason.REASON_ROSTER_FULL)  # others are where this client was


class GaveUp(EdgeflockError):
    """No server was reached for too long."""


class RunFailed(EdgeflockError):
    """The run is over, and that without a result."""


@dataclass(frozen=True)
class AgentRules:
    """How an agent behaves, from the configuration."""

    instance: bytes
    stay: bool
    give_up_after_s: float
    alone: bool  # the only client of this process


class Agent:
    """One client's life in the network, over any number of connections."""

    def __init__(self, client_id: str, folder: Path, link: Link, trainer: Trainer, rules: AgentRules) -> None:
        self.client_id = client_id
        self._folder = folder
        self._link = link
        self._trainer = trainer
        self._rules = rules
        self._log = structlog.get_logger(__name__).bind(client_id=client_id)
        # Seeded by the instance: devices that fail together do not come back together.
        self._backoff = Backoff(Random(f"{rules.instance.hex()}/{client_id}"))
        self._outbox = Outbox(folder)
        self._meter = Meter(alone=rules.alone, gauge=trainer.gauge)
        self._part: Participation | None = None
        self._seated = False  # a server has shown this client a run: it had its id and a seat to itself
        self._heard = time.monotonic()
        self._return_within_ms = 0
        self._finished = ""  # the run that is over, with --stay

    @property
    def work(self) -> tuple[int, int, int] | None:
        """The round that is trained now, the steps that are done and all; None: none is."""
        return self._part.work if self._part else None

    async def run(self) -> str:
        """Take part until the run is over and return why; raises the EdgeflockError that ended it early."""
        try:
            while True:
                began = time.monotonic()
                ending = await self._connection()
                if ending is not None and not self._rules.stay:
                    if ending.failed:
                        raise RunFailed(f"the run has failed: {ending.reason}")
                    return ending.reason
                if time.monotonic() - began > STEADY_S + self._backoff.most_s:
                    self._backoff.reset()
        except OSError as error:  # of our own files: gRPC's errors are others
            raise Unwritable(self._folder, error) from None
        finally:
            if self._part:
                await self._part.stop()

    async def _connection(self) -> Finish | None:
        """Live through one connection; return why the run ended, or None after a pause, to try again."""
        try:
            async with self._link.channel() as channel:
                return await self._over(await self._life(channel.stub))
        except ServerRefused as refused:
            return await self._refused(refused)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise EdgeflockError(f"{self._link.target} is not an fl-server of this generation") from None
            await self._unreached(error)
        except Interrupted as error:
            await self._pause(str(error))
        return None

    async def _unreached(self, error: grpc.aio.AioRpcError) -> None:
        """Say why, and wait; raises Distrusted if TLS is set up wrongly and no server was met before."""
        trust, details, new = self._link.trust, error.details() or "", self._part is None
        wrong = trust.wrong(details)
        if passing := trust.passing(details):
            await self._pause(passing)
        elif wrong and new:
            raise Distrusted(f"the server at {self._link.target} is not trusted: {wrong}")
        else:
            self._log.debug("grpc_says", code=error.code().name, details=details)
            await self._pause(wrong or in_words(error) + (trust.hint(details) if new else ""))

    async def _refused(self, refused: ServerRefused) -> Finish | None:
        if refused.reason == Reason.REASON_FINISHED:
            return await self._over(Finish(str(refused)))
        if not (refused.temporary or refused.reason in _REJOIN or self._waits_out(refused)):
            raise refused
        await self._pause(str(refused), refused.retry_after_ms, met=True)
        return None

    def _waits_out(self, refused: ServerRefused) -> bool:
        """Whether others merely stand where this client had its place, as strangers behind a reused port do
        while its server is away. At first contact they are a mistake that somebody should hear of."""
        return self._seated and refused.reason in _OTHERS

    async def _pause(self, reason: str, retry_after_ms: int = 0, **more: bool) -> None:
        """Wait before the next attempt; raises GaveUp when no server was heard for too long."""
        quiet_s = time.monotonic() - self._heard
        left_s = self._rules.give_up_after_s - quiet_s
        if not self._rules.stay and left_s <= 0:
            raise GaveUp(f"no server was reached at {self._link.target} for {quiet_s:.0f} s: {reason}")
        delay_s = self._backoff.next_s(retry_after_ms=retry_after_ms, return_within_ms=self._return_within_ms)
        self._return_within_ms = 0
        delay_s = delay_s if self._rules.stay else min(delay_s, left_s)
        self._log.warning(
            "server_not_reached",
            server=self._link.target,
            reason=reason,
            next_attempt_s=round(delay_s, 2),
            **more,
        )
        await asyncio.sleep(delay_s)

    async def _over(self, ending: Finish) -> Finish:
        """The run is over: say so once; with --stay wait before asking for the next one."""
        run_id = self._part.run_id if self._part else "unknown"
        if run_id != self._finished:
            self._finished = run_id
            self._log.info("run_over", run_id=run_id, reason=ending.reason, failed=ending.failed)
            self._backoff.reset()
        if self._rules.stay:
            await asyncio.sleep(self._backoff.next_s())
        return ending

    # -------------------------------------------------------------------------------- one connection

    async def _life(self, stub: Stub) -> Finish:
        """Join, watch and act until the run is over; every trouble is an exception."""
        line, part = await self._join(stub)
        self._log.info("connected", server=self._link.target)
        watcher = asyncio.create_task(self._watch(line, part))
        try:
            ending = await part.act(line)
            await _leave(line, ending.reason)
            return ending
        except asyncio.CancelledError:
            await part.leave()
            await _leave(line, "shut down")
            raise
        except EdgeflockError as error:
            await _leave(line, str(error))
            raise
        finally:
            self._heard = time.monotonic()  # until now the server was there, news or not
            part.detach()
            line.lose(Interrupted("this connection is over"))  # whatever still waits on it
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _join(self, stub: Stub) -> tuple[Line, Participation]:
        request = pb.JoinRequest(
            protocol=PROTOCOL,
            software=_software(),
            client_id=self.client_id,
            instance_id=self._rules.instance,
            own_data=await self._trainer.run(self._trainer.own_data, self.client_id),
            device=self._trainer.description,
        )
        answer = await stub.Join(request, timeout=JOIN_TIMEOUT_S)
        if answer.HasField("refusal"):
            raise ServerRefused(answer.refusal)
        self._heard = time.monotonic()
        admission = answer.admission
        return Line(stub, admission.session), await self._enter(admission)

    async def _enter(self, admission: pb.Admission) -> Participation:
        """Take part in the run of this admission, or go on with it."""
        run = run_from_wire(admission.run)
        if self._part is None or self._part.run_id != run.run_id:
            if self._part:
                await self._part.stop()
                self._meter.finish(0)  # what was between two runs is neither's
            setup = await self._trainer.run(self._trainer.setup, run)
            store = Store(self._folder, run.run_id)
            self._part = Participation(
                self.client_id, setup, self._trainer, store, self._outbox, self._meter, self._backoff
            )
        self._part.enter(run.epoch)
        return self._part

    async def _watch(self, line: Line, part: Participation) -> None:
        """Pass on every view; whatever ends the stream breaks the line, unless the run is over: the server
        has nothing more to say, and hears us out."""
        over = False
        try:
            async for answer in line.stub.Watch(pb.WatchRequest(session=line.session)):
                if answer.HasField("refusal"):
                    raise ServerRefused(answer.refusal)
                self._heard, self._seated = time.monotonic(), True
                self._return_within_ms = answer.view.return_within_ms
                part.see(answer.view, line)
                over = answer.view.HasField("ending")
            if not over:
                raise Interrupted("the server has closed the watch")
        except (ServerRefused, Interrupted, grpc.aio.AioRpcError) as error:
            line.lose(error)


async def _leave(line: Line, reason: str) -> None:
    request = pb.LeaveRequest(session=line.session, reason=reason[:200])
    with suppress(grpc.aio.AioRpcError):  # a courtesy: the server notices a client that is gone by itself
        await line.stub.Leave(request, timeout=LEAVE_TIMEOUT_S)


@cache
def _software() -> str:
    return version("edgeflock")
