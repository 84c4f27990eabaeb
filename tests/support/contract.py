"""A run of any method in one process, of the parts that the two daemons are made of.

The server's learner, fold, spool and checkpoints; the clients' bench and stores. What lies between them is
handed over as the messages that a network would carry.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from edgeflock.client.keeping.store import Store
from edgeflock.client.link import wire
from edgeflock.client.link.transfer import Incoming
from edgeflock.client.protocol import Generation
from edgeflock.client.training import setup
from edgeflock.client.training.bench import Bench, Progress
from edgeflock.client.training.data import Member
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import Package, Scope
from edgeflock.common.run import ModelDescription, RunDescription
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.options import parse, texts
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, Setting, State
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.engine.checks import check_package
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import Spool, SpoolEntry
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.work import RoundWork
from edgeflock.server.service.views import task_of
from edgeflock.v1 import aggregator_pb2 as pb
from support.learners import begun
from support.training import samples

SHAPE, CLASSES, SEED = (1, 4, 5), 3, 3
PLAN = Plan(lr=0.05, batch_size=6, epochs=2)
SIZES = (20, 9, 14)
COSTS = {"round_s": 1.0, "train_s": 0.25}  # measured otherwise; fixed, so that runs can be compared


def shards(*sizes: int, shape: tuple[int, ...] = SHAPE, classes: int = CLASSES) -> tuple[LocalData, ...]:
    return tuple(samples(size, shape, classes, seed=10 + index) for index, size in enumerate(sizes))


def plain_net() -> Net:
    return models.build("mlp", input_shape=SHAPE, classes=CLASSES, arguments={"hidden": "8"}, seed=SEED)


class NormalisedNet(Net):
    """A small model with BatchNorm, hence with buffers and a counter."""

    features = 8

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(20, 8), nn.BatchNorm1d(8), nn.ReLU())
            self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return features, self.head(features)


class HeldData:
    """What a method's server half computes with: a workbench and data of its own."""

    def __init__(self, net: Callable[[], Net], shape: tuple[int, ...], classes: int) -> None:
        self._bench = Workbench(net())
        self._shape, self._classes = shape, classes

    def workbench(self) -> Workbench:
        return self._bench

    def public_data(self) -> LocalData:
        return samples(16, self._shape, self._classes, seed=50)

    def score_data(self) -> LocalData:
        return samples(8, self._shape, self._classes, seed=51)


@dataclass(frozen=True)
class Played:
    """One round as it was."""

    work: RoundWork
    updates: Mapping[int, SpooledUpdate]
    rejected: Mapping[int, Verdict]
    metrics: Mapping[str, float]
    down: Mapping[int, tuple[Package, ...]]  # what each client fetched
    digests: tuple[str, str]  # of the server's whole state


@dataclass
class Trial:
    """One run of one method."""

    folder: Path
    method: str
    net: Callable[[], Net] = plain_net
    data: Sequence[LocalData] = field(default_factory=lambda: shards(*SIZES))
    plan: Plan = PLAN
    codec: str = "identity"
    options: Mapping[str, str] = field(default_factory=dict)
    shape: tuple[int, ...] = SHAPE
    classes: int = CLASSES

    def __post_init__(self) -> None:
        self.found = load(self.method)
        self.params = parse(self.found.params, self.options)
        self.number = 0
        self.digests: tuple[str, str] | None = None
        self.restart_server()
        self.restart_clients()

    # ------------------------------------------------------------------------------ the two ends

    def restart_server(self) -> None:
        """A new process comes back to the last committed round, or makes the first state."""
        flat = FlatModel(self.net())
        layouts = flat.layouts
        home = self.folder / "server"
        home.mkdir(parents=True, exist_ok=True)
        net = self.net()
        setting = Setting(
            flat.layout, self.classes, net.features, clients=len(self.data), seed=SEED, head=net.head_names()
        )
        self.learner = begun(
            self.found,
            self.options,
            setting,
            flat,
            layouts,
            self.plan,
            lr_decay=0.9,
            codec=self.codec,
            tools=HeldData(self.net, self.shape, self.classes),
        )
        self.checkpoints, self.spool = Checkpoints(home, layouts), Spool(home / "spool")
        if self.digests is None:
            saved = self.learner.save(self.checkpoints, 0)
            self.digests = (saved.model.digest, saved.state_digest)
        else:
            self.learner.load(self.checkpoints, self.number, self.digests)

    def restart_clients(self) -> None:
        """A new process hosts all clients; what they keep lies on the disk."""
        bench = Workbench(self.net())
        self.bench = Bench(bench)
        model = ModelDescription("small", self.shape, self.classes)
        clients, options = len(self.data), texts(self.params)
        run = RunDescription(
            "trial", 0, SEED, self.method, options, model, bench.model.layouts, data=None, clients=clients
        )
        self.setup = setup.make(run, bench.net, bench.model)
        self.stores = [Store(self._client_folder(index), "trial") for index in range(len(self.data))]

    def forget(self, index: int) -> None:
        """A client has lost what it kept."""
        self.stores[index].rewind(0)

    def _client_folder(self, index: int) -> Path:
        return self.folder / "clients" / str(index)

    @property
    def model(self) -> Tensor:
        return self.learner.state.model.clone()

    def state_of(self, index: int) -> State:
        return self.stores[index].load()

    # ------------------------------------------------------------------------------- one round

    def play(self, *cohorts: Collection[int]) -> tuple[str, str]:
        """Play these rounds and return the digests of the server's state."""
        for cohort in cohorts:
            self.round(cohort)
        assert self.digests is not None
        return self.digests

    def round(
        self,
        cohort: Collection[int] = (),
        *,
        arrivals: Sequence[int] = (),
        uncounted: Collection[int] = (),
        spoiled: Collection[int] = (),
    ) -> Played:
        """Play the next round; those of `uncounted` come too late, `spoiled` updates hold a NaN."""
        self.number += 1
        members = tuple(sorted(cohort or range(len(self.data))))
        work, entries = self._open(members)
        received, down = dict[int, SpooledUpdate](), {}
        for index in arrivals or members:
            update, down[index] = self._train(index, work)
            sent = _with_nan(update) if index in spoiled else update
            received[index] = self._receive(work, entries[index], index, sent)
            if not uncounted:
                self.learner.advance(members, dict(received))
        counted = set(members) - set(uncounted)
        rejected = self.learner.fold(counted, dict(received))
        metrics = self.learner.step(replace(work.round, costs=COSTS))
        saved = self.learner.save(self.checkpoints, self.number)
        for entry in entries.values():
            entry.retire()
        self.digests = (saved.model.digest, saved.state_digest)
        for index in members:
            store = self.stores[index]
            if index in counted - set(rejected) and store.candidate is not None:
                store.promote(store.candidate)
            else:
                store.discard()
        return Played(work, received, rejected, metrics, down, self.digests)

    def _open(self, members: tuple[int, ...]) -> tuple[RoundWork, dict[int, SpoolEntry]]:
        sizes = {index: len(data) for index, data in enumerate(self.data)}
        round = self.learner.round(self.number, members, sizes)
        packages = self.spool.packages(self.number)
        work = self.learner.open(round, self.checkpoints.model_path(self.number - 1), packages)
        self.learner.prepare(round)
        return work, self.spool.prepare(self.number, members, work.upload_limit)

    def _train(self, index: int, work: RoundWork) -> tuple[Sent, tuple[Package, ...]]:
        """Fetch, train, stage: the client's side."""
        view = wire.view(pb.View(task=task_of(work)))
        task, store = view.task, self.stores[index]
        assert task is not None
        self.bench.begin()
        state = store.load()
        fetched = []
        for parcel in task.parcels:
            if parcel.scope is Scope.OPTIONAL and not self.setup.half.lacks(state, task.plan.flags):
                continue
            broadcast = self._broadcast(parcel.scope, index, work)
            incoming = Incoming(
                self.number, parcel.scope, broadcast.package, partial(self.bench.room, self.setup)
            )
            if not incoming.complete:  # an empty package needs no fetch
                incoming.take(
                    pb.FetchResponse.FromString(broadcast.message(0, broadcast.package.size_bytes)).chunk
                )
            incoming.decode()
            self.bench.accept(incoming.package)
            fetched.append(incoming.package)
        member = Member(index, self.data[index], ())
        result = self.bench.train(self.setup, member, task, state, Progress())
        encoded = result.encoded
        store.stage(result.state, Generation(self.number, encoded.package.digest))
        return Sent(encoded.package, b"".join(map(bytes, encoded.pieces))), tuple(fetched)

    def _broadcast(self, scope: Scope, index: int, work: RoundWork) -> Broadcast:
        if scope is Scope.PERSONAL:
            return self.learner.personal(work, index, self.spool.packages(self.number))
        found = work.shared if scope is Scope.SHARED else work.optional
        assert found is not None
        return found

    def _receive(self, work: RoundWork, entry: SpoolEntry, index: int, update: Sent) -> SpooledUpdate:
        """Check the header and put the payload into the spool: the server's side."""
        check_package(update.package, work.uploads, work.scalars)
        description = Description(self.number, update.package, 1)
        arrival = entry.begin(description.to_bytes())  # all of it, if it came before a crash
        if (held := arrival.held) < len(update.payload):
            arrival.append(held, update.payload[held:], extend(0, update.payload), last=True)
        entry.finish()
        return SpooledUpdate(index, update.package, entry.data_path, work.layouts)


@dataclass(frozen=True)
class Sent:
    """An update on its way."""

    package: Package
    payload: bytes


def _with_nan(update: Sent) -> Sent:
    payload = struct.pack("<f", math.nan) + update.payload[4:]
    package = Package(update.package.sections, update.package.scalars, extend(0, payload))
    return Sent(package, payload)


def finite(trial: Trial) -> bool:
    """Whether everything that both ends keep is finite."""
    states = [trial.learner.state, *(trial.state_of(index) for index in range(len(trial.data)))]
    vectors = all(bool(torch.isfinite(v).all()) for state in states for v in state.vectors.values())
    return vectors and all(math.isfinite(v) for state in states for v in state.scalars.values())


def same(first: State, second: State) -> bool:
    """Whether two states have the same bits."""
    names = first.vectors.keys() == second.vectors.keys() and first.scalars == second.scalars
    return names and all(torch.equal(v, second.vectors[name]) for name, v in first.vectors.items())
