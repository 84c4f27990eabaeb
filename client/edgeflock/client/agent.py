"""The agent of one hosted client: joins, watches, comes back after every trouble, until the run is over."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import structlog

from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.deciding.route import Route
from edgeflock.client.deciding.session import Finish
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.keeping.models import Shelf
from edgeflock.client.keeping.statedir import Unwritable, read_gates, write_gates
from edgeflock.client.link.line import Channel, Line, Link
from edgeflock.client.participation import Participation
from edgeflock.client.protocol import Interrupted, Introduction, ServerRefused, Unreached
from edgeflock.client.training.desk import Desk
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.errors import (
    CorruptState,
    EdgeflockError,
    NothingYet,
    Undescribed,
    UnknownName,
    UsageError,
)
from edgeflock.common.foreign import blamed, unforeseen
from edgeflock.common.plugins.digest import Code, differences
from edgeflock.common.reason import Reason
from edgeflock.common.run import RunDescription
from edgeflock.common.wire.address import Address

MOST_BETWEEN_LOOKS_S = 30.0  # at own data that have no sample yet
STEADY_S = 10.0  # a connection that lasted so long was a good one


class GaveUp(EdgeflockError):
    """No server was reached for too long."""


class Distrusted(EdgeflockError):
    """No connection to this server can be trusted, and waiting changes nothing."""


class Foreign(EdgeflockError):
    """Something answers at the address that is no aggregator of ours."""


class RunFailed(EdgeflockError):
    """The run is over, and that without a result."""


@dataclass(frozen=True)
class AgentRules:
    """How an agent behaves, from the configuration."""

    instance: bytes
    stay: bool
    give_up_after_s: float
    alone: bool  # the only client of this process
    code: tuple[Code, ...] = ()  # the plug-ins of this process
    life: bytes = field(default_factory=lambda: secrets.token_bytes(8))  # of this process


class _Elsewhere(Exception):
    """The server is reached, and this client has a better place to call."""


class Agent:
    """One client's life in the network, over any number of connections."""

    def __init__(
        self,
        client_id: str,
        folder: Path,
        link: Link,
        trainer: Trainer,
        rules: AgentRules,
        shelf: Shelf | None = None,
    ) -> None:
        self.client_id = client_id
        self._shelf = shelf  # for the models that come back
        self._folder = folder
        self._link = link
        self._trainer = trainer
        self._rules = rules
        self._log = structlog.get_logger(__name__).bind(client_id=client_id)
        # Seeded by the instance: devices that fail together do not come back together.
        self._backoff = Backoff(Random(f"{rules.instance.hex()}/{client_id}"))
        self._route: Route[Address] = Route(link.addresses, self._backoff.random, read_gates(folder))
        self._meter = trainer.meter(alone=rules.alone)
        self._part: Participation | None = None
        self._seated = False  # a server has shown this client a run: it had its id and a seat to itself
        self._proved = False  # it was ready in one: what a run needs that this client lacks is a stranger's
        self._refusal = ""  # that is waited out
        self._heard = time.monotonic()
        self._return_within_ms = 0
        self._finished = ""  # the run that is over, with --stay

    @property
    def work(self) -> tuple[int, int, int] | None:
        """The round that is trained now, the steps that are done and all; None: none is."""
        return self._part.work if self._part else None

    @property
    def sat(self) -> bool:
        """Whether it has had its data and its seat in a run."""
        return self._proved or (self._part is not None and self._part.sat)

    async def run(self) -> str:
        """Take part until the run is over and return why; raises the EdgeflockError that ended it early."""
        try:
            await self._have_data()  # what is wrong with them is no server's doing
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
                await self._part.close()

    async def _have_data(self) -> None:
        """Read the client's own data; of those that grow the first samples are waited for."""
        told, wait_s = "", 1.0
        while True:
            try:
                await self._trainer.own_data(self.client_id)
                return
            except NothingYet as error:
                if not self._trainer.refreshes_rounds:
                    raise
                if told != str(error):
                    told = str(error)
                    self._log.warning("data_awaited", reason=told)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MOST_BETWEEN_LOOKS_S)

    async def _connection(self) -> Finish | None:
        """Live through one connection; return why the run ended, or None after a pause, to try again."""
        try:
            async with self._link.channel(self._route.at) as channel:
                return await self._over(await self._life(channel))
        except _Elsewhere:
            self._log.info("moved", to=self._route.at.target)
        except ServerRefused as refused:
            return await self._refused(refused)
        except Unreached as error:
            await self._unreached(error)
        except Interrupted as error:
            await self._pause(str(error))
        except CorruptState:
            raise
        except EdgeflockError as error:  # of a run that is not for this client
            await self._wait_out(error)
        except OSError:
            raise
        except Exception as error:
            await self._unfit(error)
        return None

    async def _unreached(self, error: Unreached) -> None:
        """Say why, turn to another address, and wait; raises what waiting would not change, if no server was
        met before."""
        told, target = self._route.at in self._route.told, self._route.at.target
        if error.foreign and not told:
            await self._wait_out(Foreign(f"{target} is not an fl-server of this generation"))
        elif error.distrusted and not told:
            await self._wait_out(Distrusted(f"the server at {target} is not trusted: {error}"))
        else:
            await self._pause(f"{error}{error.hint if self._part is None else ''}", turn=True)

    async def _refused(self, refused: ServerRefused) -> Finish | None:
        if refused.reason is Reason.FINISHED:
            return await self._over(Finish(str(refused)))
        if refused.passes:
            await self._pause(str(refused), refused.retry_after_ms, met=True)
        else:
            await self._wait_out(refused)
        return None

    async def _wait_out(self, error: EdgeflockError) -> None:
        """Wait until whoever refused for good is gone, as strangers behind a reused address go; raises the
        refusal at first contact: then it is a mistake that somebody should hear of."""
        if not (self._seated or self._rules.stay):
            raise error
        said, self._refusal = self._refusal, str(error)
        await self._pause(str(error), met=True, said=said == self._refusal)

    async def _unfit(self, error: Exception) -> None:
        """A run has met what nobody foresaw: too little memory, a mistake in a plug-in, or in us. Who stays
        waits for another run, and begins with this one anew."""
        if not self._rules.stay:
            raise error
        part, self._part = self._part, None
        if part:
            with suppress(Exception):  # it is given up
                await part.close()
        self._log.error("run_given_up", reason=unforeseen(error), exc_info=not blamed(error))
        await self._pause(unforeseen(error), met=True, said=True)

    async def _pause(
        self,
        reason: str,
        retry_after_ms: int = 0,
        *,
        met: bool = False,
        said: bool = False,
        turn: bool = False,
    ) -> None:
        """Wait before the next attempt, and say so once; raises GaveUp when none was heard for too long."""
        quiet_s = time.monotonic() - self._heard
        left_s = self._rules.give_up_after_s - quiet_s
        if not self._rules.stay and left_s <= 0:
            raise GaveUp(f"no server was reached at {self._route.at.target} for {quiet_s:.0f} s: {reason}")
        if self._return_within_ms:  # a server that names a time for the return was there until now
            self._backoff.reset()
        delay_s = self._backoff.next_s(retry_after_ms=retry_after_ms, return_within_ms=self._return_within_ms)
        self._return_within_ms = 0
        delay_s = delay_s if self._rules.stay else min(delay_s, left_s)
        fields = {"reason": reason, "next_attempt_s": round(delay_s, 2)} | ({"met": True} if met else {})
        if not said:
            self._log.warning("server_not_reached", server=self._route.at.target, **fields)
        if turn:
            self._route.fail(time.monotonic())
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

    async def _life(self, channel: Channel) -> Finish:
        """Join, watch and act until the run is over; every trouble is an exception."""
        line, part = await self._join(channel)
        self._log.info("connected", server=self._route.at.target)
        watcher = asyncio.create_task(self._watch(line, part))
        try:
            ending = await part.act(line)
            await line.leave(ending.reason)
            return ending
        except asyncio.CancelledError:
            await part.leave()
            await line.leave("shut down")
            raise
        except EdgeflockError as error:
            await line.leave(str(error))
            if not (part.sat or self._proved or _passes(error)):
                self._seated = False  # it never took its seat
            raise
        finally:
            if part.hears:
                self._heard = time.monotonic()  # until now the server was there, news or not
            self._proved = self._proved or part.sat
            part.detach()
            line.lose(Interrupted("this connection is over"))  # whatever still waits on it
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _join(self, channel: Channel) -> tuple[Line, Participation]:
        over = self._part is not None and self._part.run_id == self._finished
        own = await self._trainer.own_data(self.client_id, again=over or bool(self._refusal))
        rules, device = self._rules, self._trainer.description
        saves = self._shelf.saves if self._shelf is not None else ""
        me = Introduction(self.client_id, rules.instance, own, device, rules.life, rules.code, saves)
        line, run = await channel.join(me)
        self._go_where_told(line)
        try:
            return line, await self._enter(run)
        except Undescribed:  # to say what differs takes the whole layouts
            line, run = await channel.join(me, whole=True)
            return line, await self._enter(run)

    def _go_where_told(self, line: Line) -> None:
        """Keep the addresses that the server told; raises _Elsewhere if another one is better."""
        if line.gates != self._route.told:
            write_gates(self._folder, line.gates)
        if self._route.follow(line.gates, line.best, time.monotonic()):
            raise _Elsewhere

    async def _enter(self, run: RunDescription) -> Participation:
        """Take part in the run, or go on with it."""
        if self._part is None or self._part.run_id != run.run_id:
            if self._part:
                await self._part.close()
                self._meter.finish(0)  # what was between two runs is neither's
            for words in differences(run.code, self._rules.code):
                self._log.warning("code_differs", reason=words)
            desk = await self._desk(run)
            kept = await self._trainer.run(Kept, self.client_id, self._folder, run.run_id)
            self._part = Participation(self.client_id, desk, kept, self._backoff, self._shelf)
        self._part.enter(run.epoch)
        return self._part

    async def _desk(self, run: RunDescription) -> Desk:
        """Return the desk for a run that this client's own data fit."""
        try:
            setup = await self._trainer.setup(run)
            await self._trainer.check_data(setup, self.client_id)
        except UnknownName as error:
            if error.name not in {code.name for code in run.code}:
                raise
            raise UsageError(
                f"{error}; at the server an installed package brings it: install that here, too"
            ) from None
        return Desk(self.client_id, self._trainer, setup, self._meter)

    async def _watch(self, line: Line, part: Participation) -> None:
        """Pass on every view; whatever ends the stream breaks the line, unless the run is over: the server
        has nothing more to say, and hears us out."""
        over = False
        why: Exception = Interrupted("the server has closed the watch")
        try:
            async for view in line.views():
                self._heard, self._seated, self._refusal = time.monotonic(), True, ""
                self._return_within_ms = view.return_within_ms
                part.see(view, line)
                over = view.ending is not None
                del view  # it may hold a model
        except Exception as error:  # ours to judge who acts on the line: it must never wait for nobody
            over, why = False, error
        if not over:
            line.lose(why)


def _passes(error: EdgeflockError) -> bool:
    return isinstance(error, ServerRefused) and error.passes
