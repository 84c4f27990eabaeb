"""The trainer of a process: its worker threads, its training slots, what all hosted clients share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import structlog
import torch

from edgeflock.client.config import EVERY_ROUND, ClientConfig
from edgeflock.client.protocol import Extent
from edgeflock.client.training import device, setup
from edgeflock.client.training.bench import Bench
from edgeflock.client.training.data import HostedData, Member
from edgeflock.client.training.gauge import Gauge
from edgeflock.client.training.meter import Meter
from edgeflock.client.training.setup import Setup
from edgeflock.client.training.span import Span, Spans
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.augment import parse
from edgeflock.common.datasets.kit.own import OwnPart
from edgeflock.common.foreign import foreign
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.registry import build_net
from edgeflock.common.run import RunDescription
from edgeflock.common.saved import Recipe
from edgeflock.common.threads import computing
from edgeflock.common.tuning.optimizer import parse as parse_optimizer
from edgeflock.methods.kit.workbench import Workbench

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Trainer:
    """Everything torch in this process, shared by its clients."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._device = device.choose(config.device)
        self.description = device.describe(self._device, config)
        self._gauge = Gauge(watts=config.watts, slots=config.parallel)
        if config.threads != 1:
            log.warning("threads_change_bits", threads=config.threads)
        torch.set_num_threads(config.threads)
        # One thread more than slots: small work does not wait for a training.
        self._threads = computing(config.parallel + 1, "work", config.threads)
        self._slots = asyncio.Semaphore(config.parallel)
        self._waiting, self._wanted = 0, asyncio.Event()  # how many wait for a slot, and whether any does
        # By run, as long as a client is in it: another server may stand behind the address for a while.
        self._setups: WeakValueDictionary[str, Setup] = WeakValueDictionary()
        self._free: WeakKeyDictionary[Setup, list[Bench]] = WeakKeyDictionary()
        self._placing = threading.Lock()
        self._data = HostedData(config, self._device)
        self._spans = Spans(config.parallel)
        self.held_up_s = 0.0  # by tests of clients' own models, so long for each slot

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run in a worker thread. When cancelled, wait for it: what it holds is in use until it ends."""
        future = self._threads.submit(work, *args, **kwargs)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():  # it runs, or has just ended
                await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)
            raise

    def recipe(self, run: RunDescription) -> dict[str, str]:
        """Return what it takes to build a run's model again and to give it samples, as a file says it."""
        scaling = datasets.scaling(run.data.dataset if run.data else None)
        return Recipe(run.model, scaling, own=self._config.model or "").metadata()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -------------------------------------------------------------------------------- the device

    @property
    def energy_source(self) -> str:
        """Where joules come from; empty if they are not known."""
        return self._gauge.source

    async def watch_sensors(self) -> None:
        """Look at the device's sensors now and then, if there are any."""
        await self._gauge.run()

    def meter(self, *, alone: bool) -> Meter:
        """Return the meter of one client, who may be the only one of this process."""
        return Meter(alone=alone, gauge=self._gauge)

    def forget_gpu_peak(self) -> None:
        """Begin to watch how much memory of the GPU is in use."""
        device.forget_peak(self._device)

    def gpu_peak_bytes(self) -> int | None:
        """Return the highest since then; None without a GPU that tells."""
        return device.peak_bytes(self._device)

    def examined(self, seconds: float) -> None:
        """A client's test of its own model kept a slot busy so long; only on the event loop."""
        self.held_up_s += seconds / self._config.parallel

    def span(self, wanted: Setup, round: int) -> Span:
        """Return for how long this process has trained in a round, to be entered for each training."""
        return self._spans.of(wanted.run_id, round)

    # -------------------------------------------------------------------------------- the run

    async def setup(self, run: RunDescription) -> Setup:
        """Return this process's setup of the run, built once; raises an EdgeflockError if it does not fit."""
        return await self.run(self._setup, run)

    def _setup(self, run: RunDescription) -> Setup:
        with self._placing:
            found = self._setups.get(run.run_id)
            if found is None:
                net = self._net(run)
                work = self._workbench(net, run)
                found = self._setups[run.run_id] = setup.make(run, net, work.model)
                self._free[found] = [Bench(work)]
            return found

    @asynccontextmanager
    async def bench(self, wanted: Setup) -> AsyncIterator[Bench]:
        """Wait for a training slot and use it."""
        await self._take_slot()
        try:
            free = self._free[wanted]
            bench = free.pop() if free else await self.run(self._another, wanted)
            try:
                yield bench
            finally:
                free.append(bench)
        finally:
            self._slots.release()

    async def _take_slot(self) -> None:
        self._waiting += 1
        if self._slots.locked():
            self._wanted.set()
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._wanted.clear()

    async def slot_wanted(self) -> None:
        """Wait until a client waits for a slot."""
        await self._wanted.wait()

    def _another(self, wanted: Setup) -> Bench:
        return Bench(self._workbench(self._net(wanted.run), wanted.run))

    def _net(self, run: RunDescription) -> Net:
        return build_net(run.model, run.seed, self._config.model, run.tuning)

    def _workbench(self, net: Net, run: RunDescription) -> Workbench:
        augment, optimizer = parse(run.augment), parse_optimizer(run.tuning.optimizer)
        with foreign("the model"):
            return Workbench(
                net, self._device, threads=self._config.threads, augment=augment, optimizer=optimizer
            )

    # -------------------------------------------------------------------------------- data

    @property
    def refreshes_rounds(self) -> bool:
        """Whether own data are asked for again for every round."""
        return self._config.refresh == EVERY_ROUND and self._config.data is not None

    async def own_data(self, client_id: str, *, again: bool = False) -> OwnPart | None:
        """Return the client's own data, if it has some, files `again` if they have changed.

        Raises MissingData or BadData.
        """
        return await self.run(self._data.again if again else self._data.own, client_id)

    async def check_data(self, wanted: Setup, client_id: str) -> None:
        """Raise BadData if the client's own data are none that the run takes."""
        await self.run(self._data.check, wanted.run, client_id, tokens=wanted.tokens)

    async def member(
        self, wanted: Setup, client_id: str, seat: int, round: int = 0, begun: Extent | None = None
    ) -> Member:
        """Return the client in its seat with its data, as they are now for a round; `begun` with these.

        Raises an EdgeflockError if there are none.
        """
        return await self.run(
            self._data.member, wanted.run, client_id, seat, round, begun, tokens=wanted.tokens
        )
