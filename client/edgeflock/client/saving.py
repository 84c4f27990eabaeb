"""Saving: the run's model comes back to the device, onto its shelf, and whoever waits for it is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import structlog

from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.keeping.models import CURRENT, ModelKey, Shelf
from edgeflock.client.link.contact import Contact
from edgeflock.client.link.line import Line
from edgeflock.client.protocol import ServerRefused, View
from edgeflock.client.training.desk import Desk
from edgeflock.common.errors import EdgeflockError


class _Nobody:
    """Keeps no time: what is fetched to be kept is no work of a round."""

    @contextmanager
    def idle(self) -> Iterator[None]:
        yield

    def was_idle(self, seconds: float) -> None:
        pass


class Saver:
    """Fetches what is offered beside all that a client does in rounds, over any number of connections."""

    def __init__(
        self, shelf: Shelf, desk: Desk, kept: Kept, backoff: Backoff, wake: Callable[[], None]
    ) -> None:
        self._shelf, self._desk, self._kept, self._wake = shelf, desk, kept, wake
        self._contact = Contact(backoff, _Nobody())
        self._log = structlog.get_logger(__name__).bind(client_id=desk.client_id)
        self._wanted: ModelKey | None = None
        self._settled: set[ModelKey] = set()  # here, or given up
        self._task: asyncio.Task[None] | None = None
        self._missed = False  # it is said that there is none

    @property
    def busy(self) -> bool:
        """Whether something is on its way."""
        return self._task is not None

    def see(self, view: View, line: Line) -> None:
        """Take what a view offers."""
        self._contact.attach(line)
        if view.offer is None:
            self._miss(view)
            return
        if view.ending is not None or not self._desk.keeps_result:  # its own is the one of the end
            self._wanted = ModelKey(self._kept.run_id, self._kept.epoch, view.offer.round, view.offer.best)
        self._begin()

    def detach(self) -> None:
        self._contact.detach()

    async def stop(self) -> None:
        """Stop what is on its way: it goes on with the next start."""
        task, self._wanted = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _miss(self, view: View) -> None:
        if view.ending is not None and not view.failed and not (self._missed or self._settled):
            self._missed = True
            self._log.warning("model_not_offered", round=view.round)

    def _begin(self) -> None:
        if self._task is None and self._wanted is not None and self._wanted not in self._settled:
            self._task = asyncio.create_task(self._save(self._wanted))
            self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._begin()
        self._wake()

    async def _save(self, key: ModelKey) -> None:
        """Bring a model here and tell of it; what fails is a line of the log, and ends nothing."""
        try:
            if not await self._desk.run(self._shelf.holds, key):
                await self._bring(key)
            await self._tell()
        except ServerRefused as refused:  # a better one may have come, and the next view says so
            say = self._log.debug if key.best else self._log.warning
            say("fetch_refused", round=key.round, reason=str(refused))
        except Exception as error:
            ours = isinstance(error, (EdgeflockError, OSError))  # else it is a bug, of a model's code or ours
            words = str(error) if ours else f"{type(error).__name__}: {error}"
            self._log.error("model_not_saved", round=key.round, reason=words)
        self._settled.add(key)

    async def _bring(self, key: ModelKey) -> None:
        run, desk, shelf = self._desk.run, self._desk, self._shelf
        about = {**desk.recipe, **key.metadata()}
        own = await run(desk.own_result, self._kept) if desk.keeps_result else None
        if own is not None:
            lasting = await desk.lasting(key.round, self._kept, self._contact.fetch)
            await run(shelf.put, await run(desk.whole, own, lasting), about)
        else:
            with closing(await run(shelf.arrival, key)) as arrival:
                package = await self._contact.bring(key.round, arrival, desk.layouts)
                lasting = await desk.lasting(key.round, self._kept, self._contact.fetch)
                groups = await run(desk.whole, await run(arrival.groups, desk.layouts), lasting)
                about["digest"] = package.digest.hex()
                await run(shelf.put, groups, about)
                arrival.drop()
        self._log.info("model_saved", round=key.round, best=key.best, path=str(shelf.path / CURRENT))

    # ------------------------------------------------------------------------------- the command

    async def _tell(self) -> None:
        """Run the operator's command for a version that it was not run for; words come from here alone."""
        command = self._shelf.command
        said = await self._desk.run(lambda: self._shelf.untold) if command else None
        if said is None:
            return
        told = {f"EDGEFLOCK_{name.upper()}": said.get(name, "") for name in ("run", "round", "which")}
        environ = {**os.environ, **told, "EDGEFLOCK_MODEL": str(self._shelf.model)}
        environ["EDGEFLOCK_CLIENT"] = self._desk.client_id
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, env=environ
            )
            code = await process.wait()
            if code:
                self._log.warning("on_model_failed", command=command[0], reason=f"it ended with {code}")
        except OSError as error:
            self._log.warning("on_model_failed", command=command[0], reason=error.strerror or str(error))
        await self._desk.run(self._shelf.tell)
