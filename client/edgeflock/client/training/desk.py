"""The desk: one hosted client's place in a run, from a task to the update that is kept; what that takes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from edgeflock.client.costs import RoundCost, TrainCost
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.protocol import Parcel, Task
from edgeflock.client.training.allowance import Allowance
from edgeflock.client.training.bench import Bench, Progress, Result
from edgeflock.client.training.data import Member
from edgeflock.client.training.meter import Activity, Meter, peak_rss_bytes
from edgeflock.client.training.setup import Setup
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.flat import grouped, regrouped
from edgeflock.common.foreign import foreign
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.package import Kind, Package, Scope
from edgeflock.common.payload.tensorfile import Group
from edgeflock.common.tuning import adapters
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.methods.kit.base import ClientHalf
from edgeflock.methods.kit.values import State

P = ParamSpec("P")
T = TypeVar("T")


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
        self.client_id = client_id
        self._trainer, self._setup, self._meter = trainer, setup, meter
        self._member: Member | None = None
        self._told: Member | None = None  # as it was when the server was told of its samples
        self._held_up_s = 0.0  # of the trainer, when the task at hand came

    @property
    def layout_digest(self) -> bytes:
        """Of the model's parameters."""
        return self._setup.layouts.parameters.digest

    @property
    def augment(self) -> str:
        """What is done to the pictures of every step."""
        return self._setup.run.augment

    @property
    def task(self) -> str:
        """What it trains for."""
        return self._setup.run.model.task

    @property
    def tuning(self) -> Tuning:
        """What is asked of training beside the method, and done."""
        return self._setup.run.tuning

    async def sit(self, seat: int, kept: Kept) -> Member:
        """Get the data of the seat, once; raises an EdgeflockError if there are none."""
        if self._member is None or self._member.seat != seat:
            await self._get(seat, kept, 0)
        self._told = self._member
        assert self._member is not None
        return self._member

    @property
    def has_news(self) -> bool:
        """Whether its samples are others than the server was told of."""
        told, now = self._told, self._member
        if told is None or now is None:
            return False
        return (told.samples, told.class_counts) != (now.samples, now.class_counts)

    async def _get(self, seat: int, kept: Kept, round: int) -> None:
        """Get the data, those with which the round, or the run (0), was begun, and note which they are."""
        begins = bool(round) or not self._trainer.refreshes_rounds
        begun = kept.extent(round) if begins else None
        member = await self._trainer.member(self._setup, self.client_id, seat, round, begun)
        if begins and member.extent is not None and member.extent != begun:
            kept.keep_extent(member.extent)
        self._member = member

    # ------------------------------------------------------------------------------- a round

    async def train(self, task: Task, kept: Kept, fetch: Fetch) -> None:
        """Fetch what the task names, train, and leave the update in what is kept.

        Raises ServerRefused or another EdgeflockError if the task cannot be done, and Interrupted if the line
        is gone while another client waits for the slot.
        """
        self.progress = Progress()
        if task.fault is not None:
            raise task.fault
        if self._trainer.refreshes_rounds and self._member is not None and not task.closing:
            await self._get(self._member.seat, kept, task.round)
        self._held_up_s = self._trainer.held_up_s
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
        self._meter.enter(Activity.FETCH)
        state = await self._trainer.run(kept.load) if kept.generations() else State()
        bench.begin()
        with foreign("training"):
            lacks = self._setup.half.lacks(state, task.plan.flags)
        for parcel in task.parcels:
            if parcel.scope is Scope.BASE:
                await self._fetch_base(bench, task.round, parcel, kept, fetch)
            elif parcel.scope is not Scope.OPTIONAL or lacks:
                await self._fetch(bench, task.round, parcel, fetch)
        self._meter.enter(Activity.TRAIN)
        try:
            await self._trainer.run(self._train, bench, self._member, task, state, kept)
        finally:
            self._trainer.examined(self.progress.exam.seconds)

    async def _fetch(self, bench: Bench, round: int, parcel: Parcel, fetch: Fetch) -> None:
        room = partial(bench.room, self._setup)
        fetched = await fetch(round, parcel, room, self._trainer.slot_wanted)
        if fetched.encoded:
            await self._trainer.run(fetched.decode)
        bench.accept(fetched.package)

    async def _fetch_base(self, bench: Bench, round: int, parcel: Parcel, kept: Kept, fetch: Fetch) -> None:
        """Fetch what is frozen of the model, unless this device has made, or kept, the same."""
        base, run = self._setup.base, self._trainer.run
        if base.is_here:
            return
        found = await run(kept.base, base.digest)
        if found is not None and await run(bench.base, self._setup, found):
            return
        await self._fetch(bench, round, parcel, fetch)
        await run(kept.keep_base, base.digest, await run(bench.take_base, self._setup))

    def _train(self, bench: Bench, member: Member, task: Task, state: State, kept: Kept) -> None:
        """Train, and keep the update with the state that it leads to; in a worker thread."""
        cpu_s = time.thread_time()
        progress, meter = self.progress, self._meter
        progress.began_cpu_s = cpu_s
        progress.allowance = Allowance(task.allowances, lambda: meter.spent(time.thread_time() - cpu_s))
        try:
            result = self._result(bench, member, task, state)
            exam, passes = progress.exam, progress.passes
            cost = TrainCost(
                train_s=meter.seconds(Activity.TRAIN),
                cpu_s=time.thread_time() - cpu_s - exam.cpu_s,
                peak_rss_bytes=peak_rss_bytes(),
                fetch_s=meter.seconds(Activity.FETCH),
                samples_done=passes.samples_done,
                forward_samples=passes.forward_samples,
                backward_samples=passes.backward_samples,
                exam_s=exam.seconds,
                exam_cpu_s=exam.cpu_s,
                held_up_s=self._trainer.held_up_s - self._held_up_s + exam.seconds,
                busy_s=self._trainer.span(self._setup, task.round).seconds,
                used_up=progress.allowance.used_up,
                readings=meter.read(time.thread_time() - cpu_s),
            )
            package, made_from = result.encoded.package, task.made_from
            description = Description(task.round, package, member.samples, result.scores, made_from)
            kept.put(description, cost, result.encoded, result.state)
        finally:  # what was stopped was paid, too
            meter.worked(time.thread_time() - cpu_s)

    def _result(self, bench: Bench, member: Member, task: Task, state: State) -> Result:
        progress, meter = self.progress, self._meter
        span = self._trainer.span(self._setup, task.round)
        self._trainer.forget_gpu_peak()
        try:
            with span, foreign("training"):
                return bench.train(self._setup, member, task, state, progress)
        finally:
            span.less(progress.exam.seconds)
            meter.probe.note_gpu(self._trainer.gpu_peak_bytes())
            meter.examined(progress.exam)
            meter.computed(progress.passes)

    # ------------------------------------------------------------------------------- what comes of it

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something in a worker thread."""
        return await self._trainer.run(work, *args, **kwargs)

    @property
    def layouts(self) -> ModelLayouts:
        """Of the model."""
        return self._setup.layouts

    @property
    def recipe(self) -> dict[str, str]:
        """What it takes to build the run's model again, as a file says it."""
        run = self._setup.run
        return {**self._trainer.recipe(run), "method": run.method, "client": self.client_id}

    async def lasting(self, round: int, kept: Kept, fetch: Fetch) -> Mapping[str, Tensor]:
        """Return what no round changes of the model, and what this client keeps of it as its own; what is
        frozen is fetched if it is not here."""
        async with self._trainer.bench(self._setup) as bench:
            bench.begin()
            await self._fetch_base(bench, round, Parcel(Scope.BASE, None), kept, fetch)
            state = await self._trainer.run(kept.load) if kept.generations() else State()
            return await self._trainer.run(bench.lasting, self._setup, state)

    def whole(self, groups: Sequence[Group], lasting: Mapping[str, Tensor]) -> list[Group]:
        """Return what a file of the whole model holds: its weights with what adapters add to them."""
        every = [*groups, *grouped(lasting)]
        adapter = adapters.parse(self._setup.run.tuning.adapter)
        return every if adapter is None else regrouped(every, partial(adapters.merged, adapter=adapter))

    @property
    def keeps_result(self) -> bool:
        """Whether the result of the run is, for each client, the model that its own state holds."""
        return type(self._setup.half).kept_model is not ClientHalf.kept_model

    def own_result(self, kept: Kept) -> list[Group] | None:
        """Return that model; None: this client has none, for it took no part."""
        found = self._setup.half.kept_model(kept.load()) if kept.generations() else None
        layouts = self._setup.layouts
        if found is None or (found[1] is None and layouts.buffers.elements):
            return None
        parameters, buffers = found
        counters = torch.zeros(layouts.counters.elements, dtype=torch.int64)
        buffers = torch.zeros(0) if buffers is None else buffers
        return [
            (layouts.counters, counters),
            (layouts.parameters, parameters),
            (layouts.buffers, buffers),
        ]

    # ------------------------------------------------------------------------------- what it takes

    def resume(self, cost: TrainCost, steps: int) -> None:
        """Go on with what a process before this one has spent on an update that is not settled."""
        self._meter.resume(cost, steps)

    def idle(self) -> AbstractContextManager[None]:
        """Within this the client waits, whatever it is about to do."""
        return self._meter.idle()

    def was_idle(self, seconds: float) -> None:
        """So long nothing has moved of what is on its way."""
        self._meter.was_idle(seconds)

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
