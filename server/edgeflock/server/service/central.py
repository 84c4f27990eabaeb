"""Central training: the server takes part in its own run, in seat 0, with the union of all shards.

To the machine, the spool, the fold and the journal it is a client like any other; but nothing crosses a
wire, so its cost rows count no bytes. An update is a function of the committed state, hence made again with
the same bits after a crash.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version

import torch

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.foreign import foreign
from edgeflock.common.models.kit.base import Net
from edgeflock.common.partitions.kit import assign
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.pack import Packed, pack
from edgeflock.common.payload.package import Kind
from edgeflock.common.reason import Reason
from edgeflock.common.threads import computing
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Intake
from edgeflock.server.engine.transfer import Header, Slot
from edgeflock.server.learning.learner import Learner
from edgeflock.server.learning.work import RoundWork
from edgeflock.server.service.sessions import Session, Sessions
from edgeflock.v1 import aggregator_pb2 as pb

CLIENT_ID, SEAT = "server", 0


def load_union(config: ServerConfig, net: Net) -> LocalData:
    """Return the samples of all shards of the run's data set, each once, as the model is given them."""
    assert config.dataset is not None  # resolve has seen to it
    part = assign.union(
        datasets.load(config.dataset, config.data_root),
        partition=config.partition,
        seed=config.seed,
        shards=config.clients,
        samples_per_client=config.samples_per_client,
        public_fraction=config.public_fraction,
        public_from_shards=config.public_from_shards,
    )
    return LocalData.of(net, part.x, part.y)


@dataclass(frozen=True)
class _Trained:
    """One local round: the encoded update, valid until the next one, and what it took."""

    encoded: Packed
    costs: dict[str, float]
    used_up: str = ""  # the allowance that ended it early


class CentralTrainer:
    """The server's own part in a run; lives on the event loop, trains in a thread of its own."""

    def __init__(
        self, intake: Intake, sessions: Sessions, learner: Learner, bench: Workbench, data: LocalData
    ) -> None:
        self._intake, self._learner, self._bench, self._data = intake, learner, bench, data
        self._half = learner.method.client(learner.params, learner.setting)
        self._session = sessions.admit(Session(CLIENT_ID, b"", version("edgeflock"), {}, watching=1))
        self._ready = False
        self._stopped = threading.Event()
        self._thread = computing(1, "central")

    async def run(self) -> None:
        """Take the seat, then do every task of it until the run is over or `stop` is called."""
        self._intake.online(CLIENT_ID)
        try:
            while not self._stopped.is_set():
                self._session.changed.clear()
                view = self._intake.view(CLIENT_ID)
                if view.ending is not None:
                    break
                if view.seat is not None and not self._ready:
                    self._ready = True
                    self._intake.ready(CLIENT_ID, len(self._data))
                elif view.work is not None:
                    await self._take_part(view.work)
                else:
                    await self._session.changed.wait()
        finally:
            self._thread.shutdown(wait=False)
        self._intake.told(CLIENT_ID)

    def stop(self) -> None:
        """End before the next step; what was trained of an open round is trained again next time."""
        self._stopped.set()
        self._session.changed.set()

    async def _take_part(self, work: RoundWork) -> None:
        loop = asyncio.get_running_loop()
        trained = await loop.run_in_executor(self._thread, self._train, work)
        if self._stopped.is_set() or self._intake.view(CLIENT_ID).work is not work:
            return
        refused = await self._deliver(work, trained)
        if refused is not None and refused.reason not in (Reason.BUSY, Reason.DRAINING):
            raise EdgeflockError(refused.sentence)

    async def _deliver(self, work: RoundWork, trained: _Trained) -> Refused | None:
        """Put the update where a client's would be; what a crash left of it stays."""
        described = Description(work.round.number, trained.encoded.package, len(self._data))
        slot = await self._intake.offer(CLIENT_ID, Header(described, trained.costs, trained.used_up))
        if not isinstance(slot, Slot):
            return slot if isinstance(slot, Refused) else None
        refused = await slot.begin()
        offset, running = 0, 0
        for piece in trained.encoded.pieces:
            running = extend(running, piece)
            end = offset + len(piece)
            if end > slot.held and refused is None:
                rest = memoryview(piece).cast("B")[slot.held - offset :]
                refused = await slot.append(slot.held, rest, running)
            offset = end
        return refused or await slot.complete()

    def _train(self, work: RoundWork) -> _Trained:
        began, cpu_s = time.monotonic(), time.thread_time()
        local = self._local(work)

        allowed, used_up = work.allowances.get("cpu", math.inf), ""

        def proceed() -> bool:
            nonlocal used_up
            self._session.progress = pb.Progress(
                round=work.round.number,
                steps_done=local.steps_done,
                steps_total=local.steps_total,
                cpu_s=time.thread_time() - cpu_s,
            )
            used_up = "cpu" if time.thread_time() - cpu_s >= allowed else ""
            return not self._stopped.is_set() and not used_up

        with foreign("training"):
            trained = steps.run(self._half, local, proceed)
        bundles = {
            **trained,
            Kind.BUFFERS: local.model.buffers,
            Kind.COUNTERS: local.model.counters,
        }
        parts = {
            spec.kind: (bundles[spec.kind].reshape(-1), spec.layout, spec.codec) for spec in work.uploads
        }
        encoded = pack(parts, local.report(), lambda kind: torch.Generator())
        costs = {
            "samples": len(self._data),
            "steps": local.steps_done,
            "samples_done": local.samples_done,
            "forward_samples": local.forward_samples,
            "backward_samples": local.backward_samples,
            "train_s": time.monotonic() - began,
            "cpu_s": time.thread_time() - cpu_s,
        }
        return _Trained(encoded, costs, used_up)

    def _local(self, work: RoundWork) -> Local:
        vectors = self._learner.state.vectors
        received = {
            Kind.MODEL: vectors["model"],
            Kind.BUFFERS: vectors["buffers"],
            Kind.COUNTERS: vectors["counters"],
        }
        seed = self._learner.setting.seed
        return Local(
            self._bench,
            self._data,
            work.plan,
            seed=seed,
            seat=SEAT,
            round=work.round.number,
            received=received,
        )
