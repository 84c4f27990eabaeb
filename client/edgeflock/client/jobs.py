"""The long jobs of an agent: a round from fetch to outbox, and the delivery of the outbox."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from edgeflock.client.deciding.session import Settlement
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.keeping.statefile import Stamp
from edgeflock.client.keeping.store import Store
from edgeflock.client.link.line import Line
from edgeflock.client.link.transfer import Incoming, Outgoing, deliver, fetch
from edgeflock.client.training.allowance import Allowance
from edgeflock.client.training.bench import Bench, Member, Progress
from edgeflock.client.training.meter import Activity, Meter, TrainCost, peak_rss_bytes
from edgeflock.client.training.setup import Setup
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.payload.description import Description
from edgeflock.common.wire.messages import package_from_wire
from edgeflock.methods.kit.values import State
from edgeflock.v1 import aggregator_pb2 as pb

T = TypeVar("T")


class Attempt(Protocol):
    """Tries an operation until it works, on whatever line there is; `reached` tells how far it has come."""

    def __call__(
        self, operation: Callable[[Line], Awaitable[T]], reached: Callable[[], int]
    ) -> Awaitable[T]: ...


@dataclass(frozen=True)
class Desk:
    """What one hosted client works with in one run."""

    setup: Setup
    trainer: Trainer
    member: Member
    store: Store
    outbox: Outbox
    meter: Meter


async def train_round(desk: Desk, task: pb.Task, progress: Progress, attempt: Attempt) -> None:
    """Fetch what the task names, train, and leave the update in the outbox.

    Raises Refused or another EdgeflockError if the task cannot be done.
    """
    async with desk.trainer.bench(desk.setup) as bench:
        try:
            await _work(desk, bench, task, progress, attempt)
        finally:
            desk.meter.enter(Activity.WAIT)


async def _work(desk: Desk, bench: Bench, task: pb.Task, progress: Progress, attempt: Attempt) -> None:
    began = time.monotonic()
    desk.meter.enter(Activity.FETCH)
    state = await desk.trainer.run(desk.store.load) if desk.store.generations() else State()
    bench.begin()
    lacks = desk.setup.half.lacks(state, task.flags)
    for download in task.downloads:
        if download.scope != pb.SCOPE_OPTIONAL or lacks:
            await _fetch(desk, bench, task.round, download, attempt)
    desk.meter.enter(Activity.TRAIN)
    fetch_s = time.monotonic() - began
    await desk.trainer.run(_train, desk, bench, task, state, fetch_s, progress)


async def deliver_outbox(
    outbox: Outbox, meter: Meter, entry: OutboxEntry, previous: pb.RoundCost | None, attempt: Attempt
) -> Settlement | None:
    """Deliver the outbox, and the costs of the round before with it.

    Return None when the server has received it, or its verdict if there is one.

    Raises Refused if the server will never take it.
    """
    meter.enter(Activity.DELIVER)
    payload = outbox.open_payload()
    outgoing = Outgoing(entry, payload, previous)
    try:
        return await attempt(
            lambda line: deliver(line.stub, line.session, outgoing), lambda: outgoing.reached
        )
    finally:
        os.close(payload)
        meter.bytes_up += outgoing.sent_bytes
        meter.enter(Activity.WAIT)


async def _fetch(desk: Desk, bench: Bench, round: int, download: pb.Download, attempt: Attempt) -> None:
    package = package_from_wire(download.package) if download.HasField("package") else None
    incoming = Incoming(round, download.scope, package, partial(bench.room, desk.setup))
    if not incoming.take_whole(download.payload):
        await attempt(lambda line: fetch(line.stub, line.session, incoming), lambda: incoming.position)
    if incoming.encoded:
        await desk.trainer.run(incoming.decode)
    bench.accept(incoming.package)


def _train(desk: Desk, bench: Bench, task: pb.Task, state: State, fetch_s: float, progress: Progress) -> None:
    """Train and fill the outbox; in a worker thread."""
    began, cpu_s = time.monotonic(), time.thread_time()
    progress.began_cpu_s = cpu_s
    progress.allowance = Allowance(
        dict(task.allowances), lambda: desk.meter.spent(time.thread_time() - cpu_s)
    )
    desk.trainer.forget_gpu_peak()
    result = bench.train(desk.setup, desk.member, task, state, progress)
    desk.meter.probe.note_gpu(desk.trainer.gpu_peak_bytes())
    cost = TrainCost(
        train_s=time.monotonic() - began - result.exam_s,
        cpu_s=time.thread_time() - cpu_s,
        peak_rss_bytes=peak_rss_bytes(),
        fetch_s=fetch_s,
        samples_done=result.samples_done,
        used_up=progress.allowance.used_up,
        readings=desk.meter.read(time.thread_time() - cpu_s),
    )
    package = result.encoded.package
    candidate = desk.store.stage(result.state, Stamp(task.round, package.digest))
    description = Description(task.round, package, desk.member.samples, result.scores)
    entry = OutboxEntry(desk.setup.run_id, description, cost, candidate, result.encoded.marks)
    desk.outbox.put(entry, result.encoded.pieces)
    desk.meter.worked(time.thread_time() - cpu_s)
