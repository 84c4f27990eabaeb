"""The desk: one hosted client's place in a run, from a task to the update that is kept; what that takes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from edgeflock.client.costs import RoundCost, TrainCost
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.protocol import Parcel, Task
from edgeflock.client.training.allowance import Allowance
from edgeflock.client.training.bench import Bench, Progress
from edgeflock.client.training.data import Member
from edgeflock.client.training.meter import Activity, Meter, peak_rss_bytes
from edgeflock.client.training.setup import Setup
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import Kind, Package, Scope
from edgeflock.methods.kit.values import State


class Fetched(Protocol):
    """A package that is here."""

    @property
    def package(self) -> Package: ...

    @property
    def encoded(self) -> bool:
        """Whether `decode` has anything to do."""
        ...

    def decode(self) -> None:
        """Turn what is encoded into numbers, in a worker thread; raises CorruptPayload."""


Room = Callable[[Kind], tuple[Tensor, Layout]]  # where the numbers of a bundle go
Wish = Callable[[], Coroutine[Any, Any, None]]  # comes true when another client would train
# Gets what a task of that round names; raises Interrupted if there is no line when that wish comes true.
Fetch = Callable[[int, Parcel, Room, Wish], Awaitable[Fetched]]


class Desk:
    """What one hosted client works with in one run."""

    def __init__(self, client_id: str, trainer: Trainer, setup: Setup, meter: Meter) -> None:
        self.progress = Progress()  # of the training at hand
        self._client_id, self._trainer, self._setup, self._meter = client_id, trainer, setup, meter
        self._member: Member | None = None

    @property
    def layout_digest(self) -> bytes:
        """Of the model's parameters."""
        return self._setup.layouts.parameters.digest

    async def sit(self, seat: int) -> Member:
        """Get the data of the seat, once; raises an EdgeflockError if there are none."""
        if self._member is None or self._member.seat != seat:
            self._member = await self._trainer.member(self._setup, self._client_id, seat)
        return self._member

    # ------------------------------------------------------------------------------- a round

    async def train(self, task: Task, kept: Kept, fetch: Fetch) -> None:
        """Fetch what the task names, train, and leave the update in what is kept.

        Raises ServerRefused or another EdgeflockError if the task cannot be done, and Interrupted if the line
        is gone while another client waits for the slot.
        """
        self.progress = Progress()
        if task.fault is not None:
            raise task.fault
        async with self._trainer.bench(self._setup) as bench:
            try:
                await self._work(bench, task, kept, fetch)
            finally:
                self._meter.enter(Activity.WAIT)

    def stop(self) -> None:
        """Let the training at hand end as soon as it can."""
        self.progress.stop.set()

    async def _work(self, bench: Bench, task: Task, kept: Kept, fetch: Fetch) -> None:
        if self._member is None:
            raise RuntimeError("a task came before the data were there")
        began = time.monotonic()
        self._meter.enter(Activity.FETCH)
        state = await self._trainer.run(kept.load) if kept.generations() else State()
        bench.begin()
        lacks = self._setup.half.lacks(state, task.plan.flags)
        for parcel in task.parcels:
            if parcel.scope is not Scope.OPTIONAL or lacks:
                await self._fetch(bench, task.round, parcel, fetch)
        self._meter.enter(Activity.TRAIN)
        fetch_s = time.monotonic() - began
        await self._trainer.run(self._train, bench, self._member, task, state, kept, fetch_s)

    async def _fetch(self, bench: Bench, round: int, parcel: Parcel, fetch: Fetch) -> None:
        room = partial(bench.room, self._setup)
        fetched = await fetch(round, parcel, room, self._trainer.slot_wanted)
        if fetched.encoded:
            await self._trainer.run(fetched.decode)
        bench.accept(fetched.package)

    def _train(
        self, bench: Bench, member: Member, task: Task, state: State, kept: Kept, fetch_s: float
    ) -> None:
        """Train, and keep the update with the state that it leads to; in a worker thread."""
        began, cpu_s = time.monotonic(), time.thread_time()
        progress, meter = self.progress, self._meter
        progress.began_cpu_s = cpu_s
        progress.allowance = Allowance(task.allowances, lambda: meter.spent(time.thread_time() - cpu_s))
        self._trainer.forget_gpu_peak()
        result = bench.train(self._setup, member, task, state, progress)
        meter.probe.note_gpu(self._trainer.gpu_peak_bytes())
        cost = TrainCost(
            train_s=time.monotonic() - began - result.exam_s,
            cpu_s=time.thread_time() - cpu_s,
            peak_rss_bytes=peak_rss_bytes(),
            fetch_s=fetch_s,
            samples_done=result.samples_done,
            used_up=progress.allowance.used_up,
            readings=meter.read(time.thread_time() - cpu_s),
        )
        package, made_from = result.encoded.package, task.made_from
        description = Description(task.round, package, member.samples, result.scores, made_from)
        kept.put(description, cost, result.encoded, result.state)
        meter.worked(time.thread_time() - cpu_s)

    # ------------------------------------------------------------------------------- what it takes

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Within this an update is on its way."""
        self._meter.enter(Activity.DELIVER)
        try:
            yield
        finally:
            self._meter.enter(Activity.WAIT)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the round so far."""
        return self._meter.cpu_s(self.progress.cpu_s)

    @property
    def temperature_c(self) -> float | None:
        """The highest of the round so far; None where no sensor tells."""
        return self._meter.probe.temperature_c

    def settle(self, round: int) -> RoundCost:
        """A round has its verdict: return what it took; the next one begins."""
        return self._meter.finish(round)
