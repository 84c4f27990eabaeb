"""Central training: the server takes part in its own run, in seat 0, with the union of all shards.

To the round machine, the spool, the fold and the journal it is a client like any other; but nothing crosses a
wire, so its cost rows count no bytes. An update is a function of the committed state, hence made again with
the same bits after a crash.
"""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.partitions.kit import assign
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.pack import Encoded, pack
from edgeflock.common.payload.package import Kind
from edgeflock.common.wire.messages import package_to_wire
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.events import Online
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.open_round import Opened
from edgeflock.server.service.checks import stored_header
from edgeflock.server.service.sessions import Session
from edgeflock.v1 import aggregator_pb2 as pb

CLIENT_ID, SEAT = "server", 0


def load_union(config: ServerConfig) -> LocalData:
    """Return the samples of all shards of the run's data set, each once."""
    assert config.dataset is not None  # resolve has seen to it
    part = assign.union(
        datasets.load(config.dataset, config.data_root),
        partition=config.partition,
        seed=config.seed,
        shards=config.clients,
        samples_per_client=config.samples_per_client,
        public_fraction=config.public_fraction,
    )
    return LocalData(torch.from_numpy(np.ascontiguousarray(part.x, np.float32)), torch.from_numpy(part.y))


@dataclass(frozen=True)
class _Trained:
    """One local round: the encoded update, valid until the next one, and what it took."""

    encoded: Encoded
    costs: dict[str, float]
    used_up: str = ""  # the allowance that ended it early


class CentralTrainer:
    """The server's own part in a run; lives on the event loop, trains in a thread of its own."""

    def __init__(self, engine: Engine, bench: Workbench, data: LocalData) -> None:
        learner = engine.learner
        self._engine, self._bench, self._data = engine, bench, data
        self._half = learner.method.client(learner.params, learner.setting)
        self._session = Session(CLIENT_ID, b"", version("edgeflock"), {}, watching=1)
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, "central", torch.set_num_threads, (1,))

    async def run(self) -> None:
        """Take the seat, then do every task of it until the run is over or `stop` is called."""
        machine, changed = self._engine.machine, self._session.changed
        self._engine.sessions.admit(self._session)
        self._engine.post(Online(CLIENT_ID, time.monotonic()))
        try:
            while not self._stopped.is_set() and machine.ending is None:
                changed.clear()
                if SEAT in machine.roster.names and SEAT not in machine.roster.ready:
                    self._engine.ready(CLIENT_ID, SEAT, len(self._data))
                if machine.has_task(SEAT):
                    await self._take_part()
                else:
                    await changed.wait()
        finally:
            self._thread.shutdown()
        self._engine.told(CLIENT_ID)

    def stop(self) -> None:
        """End before the next step; what was trained of an open round is trained again next time."""
        self._stopped.set()
        self._session.changed.set()

    async def _take_part(self) -> None:
        opened = self._engine.opened
        assert opened is not None  # the machine has a task
        trained = await self._engine.in_thread(self._thread, self._train, opened)
        if self._stopped.is_set() or not self._engine.machine.has_task(SEAT):
            return
        await self._engine.write(self._spool, opened, trained.encoded)
        opened.costs[SEAT], opened.used_up = trained.costs, trained.used_up
        self._engine.received(SEAT, trained.encoded.package)

    def _train(self, opened: Opened) -> _Trained:
        began, cpu_s = time.monotonic(), time.thread_time()
        work = self._local(opened)

        allowed, used_up = opened.work.allowances.get("cpu", math.inf), ""

        def proceed() -> bool:
            nonlocal used_up
            self._session.progress = pb.Progress(
                round=opened.number,
                steps_done=work.steps_done,
                steps_total=work.steps_total,
                cpu_s=time.thread_time() - cpu_s,
            )
            used_up = "cpu" if time.thread_time() - cpu_s >= allowed else ""
            return not self._stopped.is_set() and not used_up

        bundles = {
            **steps.run(self._half, work, proceed),
            Kind.BUFFERS: work.model.buffers,
            Kind.COUNTERS: work.model.counters,
        }
        parts = {
            spec.kind: (bundles[spec.kind].reshape(-1), spec.layout, spec.codec)
            for spec in opened.work.uploads
        }
        encoded = pack(parts, work.report(), lambda kind: torch.Generator())
        costs = {
            "samples": len(self._data),
            "steps": work.steps_done,
            "samples_done": work.samples_done,
            "train_s": time.monotonic() - began,
            "cpu_s": time.thread_time() - cpu_s,
        }
        return _Trained(encoded, costs, used_up)

    def _local(self, opened: Opened) -> Local:
        vectors = self._engine.learner.state.vectors
        received = {
            Kind.MODEL: vectors["model"],
            Kind.BUFFERS: vectors["buffers"],
            Kind.COUNTERS: vectors["counters"],
        }
        seed = self._engine.learner.setting.seed
        return Local(
            self._bench,
            self._data,
            opened.work.plan,
            seed=seed,
            seat=SEAT,
            round=opened.number,
            received=received,
        )

    def _spool(self, opened: Opened, encoded: Encoded) -> None:
        """Write the update where a client's would be."""
        entry, package = opened.entries[SEAT], encoded.package
        header = pb.UpdateHeader(
            round=opened.number, package=package_to_wire(package), samples=len(self._data)
        )
        entry.forget()  # what a crash left may be the beginning of it, or not
        entry.begin(stored_header(header))
        offset, running = 0, 0
        for piece in encoded.pieces:
            running = extend(running, piece)
            entry.append(offset, piece, running)
            offset += len(piece)
