"""A run in one process: the real learner and client halves, files instead of a network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.tools import Tools
from edgeflock.methods.kit.values import Plan, State
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.files.checkpoints import Checkpoints, Saved
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.learner import Learner
from edgeflock.server.learning.work import RoundWork
from support.hand_mlp import Vector, gradient
from support.learners import begun, spooled
from support.training import Sample, batches_of, bench_of, local_of, samples, setting_of

SHAPE, WIDTHS, SEED = (1, 4, 5), (20, 8, 3), 3
PLAN = Plan(lr=0.1, batch_size=6, epochs=2)
PLANS = {
    "plain": Plan(lr=0.1, batch_size=6, epochs=2),
    "momentum": Plan(lr=0.05, batch_size=6, epochs=2, momentum=0.9, weight_decay=0.02),
}
# Five rounds in which clients are absent for one and for two, and an update is lost.
COHORTS: list[tuple[int, ...]] = [(0, 1, 2), (0, 2), (1, 2), (0, 1), (0, 1, 2)]
LOST: list[tuple[int, ...]] = [(), (), (1,), (), ()]


class Federation:
    """Server and clients of one run of an MLP on random data; shards of different sizes."""

    def __init__(
        self,
        folder: Path,
        method: str | Method,
        options: Mapping[str, str] | None = None,
        *,
        sizes: tuple[int, ...] = (20, 9, 14),
        plan: Plan = PLAN,
        lr_decay: float = 1.0,
        codec: str = "identity",
        tools: Tools | None = None,
        budgets: Mapping[str, float] | None = None,
        net: Callable[[], Net] | None = None,
        clock: str = "real",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.sizes, self.plan, self._folder, self._lr_decay = sizes, plan, folder, lr_decay
        self._codec, self._tools, self._clock = codec, tools, clock
        self._net = net or (lambda: bench_of("mlp", SHAPE, hidden=str(WIDTHS[1])).net)
        self._bench = Workbench(self._net())
        self.data = [samples(size, SHAPE, seed=10 + index) for index, size in enumerate(sizes)]
        self.states = [State() for _ in sizes]
        self._method = load(method) if isinstance(method, str) else method
        self._options = options or {}
        self._setting = replace(setting_of(self._bench, clients=len(sizes)), budgets=budgets or {})
        self._layouts = self._bench.model.layouts
        self._checkpoints = Checkpoints(folder, self._layouts)
        self._client = self._method.client(parse(self._method.params, self._options), self._setting)
        self.learner, self.number = self._begun(), 0
        self._saved: Saved = self.learner.save(self._checkpoints, 0)

    def _begun(self) -> Learner:
        return begun(
            self._method,
            self._options,
            self._setting,
            FlatModel(self._net()),
            self._layouts,
            self.plan,
            lr_decay=self._lr_decay,
            codec=self._codec,
            tools=self._tools,
            clock=self._clock,
        )

    @property
    def model(self) -> Vector:
        """w, as float64."""
        return self.learner.state.model.double().numpy().copy()

    def lr(self, number: int) -> float:
        return self.plan.lr * self._lr_decay ** (number - 1)

    def batches(self, index: int, number: int) -> list[Sample]:
        """Return what a client trains on in a round, for a computation by hand."""
        return batches_of(self.data[index], self.plan, round=number, seat=index)

    def full_gradient(self, index: int, w: Vector) -> Vector:
        """Return that of the mean loss over a client's whole set, without weight decay."""
        data = self.data[index]
        return gradient(w, WIDTHS, data.x.flatten(1).double().numpy(), data.y.numpy())

    def mean(self, found: Mapping[int, Vector], *, weighted: bool) -> Vector:
        """Return the mean over clients, by samples or not."""
        shares = {index: self.sizes[index] if weighted else 1 for index in found}
        whole = sum(shares[index] * vector for index, vector in found.items())
        return np.asarray(whole / sum(shares.values()))

    def round(self, *cohort: int, lost: Collection[int] = ()) -> dict[str, float]:
        """Play the next round, with everybody if no cohort is named; updates of `lost` are not counted.

        What was asked for and what came stays as `work` and `updates` until the next one.
        """
        self.number += 1
        members = cohort or tuple(range(len(self.sizes)))
        opened = self.learner.round(self.number, members, dict(enumerate(self.sizes)))
        path = self._checkpoints.model_path(self.number - 1)
        self.work = self.learner.open(opened, path, self._folder / "packages")
        self.updates = {index: self._train(self.work, index, index not in lost) for index in members}
        self.learner.prepare(opened)
        counted = set(members) - set(lost)
        assert self.learner.fold(counted, {index: self.updates[index] for index in counted}) == {}
        metrics = self.learner.step(opened)
        self._saved = self.learner.save(self._checkpoints, self.number)
        return metrics

    def _received(self, work: RoundWork, index: int) -> dict[Kind, Tensor]:
        """Return copies of what a client fetches."""
        half, state = self.learner.half, self.learner.state
        sent = {**half.broadcast(state, work.round), **half.personal(state, work.round, index)}
        if self._client.lacks(self.states[index], work.plan.flags):
            sent |= half.optional(state, work.round)
        if "buffers" in state.vectors:
            sent |= {Kind.BUFFERS: state.vectors["buffers"], Kind.COUNTERS: state.vectors["counters"]}
        return {kind: flat.clone() for kind, flat in sent.items()}

    def _local(self, work: RoundWork, index: int) -> Local:
        return local_of(
            self._bench,
            self.data[index],
            work.plan,
            round=work.round.number,
            index=index,
            received=self._received(work, index),
            state=self.states[index],
        )

    def _train(self, work: RoundWork, index: int, counts: bool) -> SpooledUpdate:
        local = self._local(work, index)
        model = self._bench.model
        beside = {Kind.BUFFERS: model.buffers, Kind.COUNTERS: model.counters}
        bundles = beside | steps.run(self._client, local)
        own = {"samples": self.sizes[index], "steps": local.steps_done, "loss": local.mean_loss()}
        missing = torch.zeros(local.params.numel())  # of a round without a step
        parts = {
            spec.kind: (bundles.get(spec.kind, missing), spec.layout, spec.codec) for spec in work.uploads
        }
        encoded = pack(parts, {**local.scalars, **own}, lambda kind: torch.Generator())
        payload = b"".join(map(bytes, encoded.pieces))
        update = spooled(index, encoded.package, payload, self._folder, work.layouts)
        if local.steps_done:
            self._client.sent(local, {kind: update.tensor(kind) for kind in parts})
        if counts:
            kept = {name: vector.clone() for name, vector in local.new_state.vectors.items()}
            self.states[index] = State(kept, dict(local.new_state.scalars))
        return update

    def closing(self, *answering: int) -> dict[str, float]:
        """Play the closing task; only those named answer it."""
        roster = dict(enumerate(self.sizes))
        opened = self.learner.round(self.number + 1, tuple(roster), roster, closing=True)
        path = self._checkpoints.model_path(self.number)
        work = self.learner.open(opened, path, self._folder / "packages")
        updates = {index: self._answer(work, index) for index in answering}
        assert self.learner.fold(answering, updates) == {}
        return self.learner.step(opened)

    def _answer(self, work: RoundWork, index: int) -> SpooledUpdate:
        local = self._local(work, index)
        self._client.close(local)
        package = pack({}, local.report(), lambda kind: torch.Generator()).package
        return spooled(index, package, b"", self._folder, work.layouts)

    def forget(self, index: int) -> None:
        """A client has lost its state."""
        self.states[index] = State()

    def restart(self) -> None:
        """The server dies and comes back from its last checkpoint."""
        self.learner = self._begun()
        self.learner.load(
            self._checkpoints, self.number, (self._saved.model.digest, self._saved.state_digest)
        )


def nag(run: Federation, index: int, t: int, x: Vector, y: Vector, gamma: float) -> tuple[Vector, Vector]:
    """One local round by Nesterov's rule, by hand: the ends of x and y."""
    for features, labels in run.batches(index, t):
        g = gradient(x, WIDTHS, features, labels) + run.plan.weight_decay * x
        after = x - run.lr(t) * g
        x, y = after + gamma * (after - y), after
    return x, y
