"""A method in its second round, made from both its halves in this process, with what the first one leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.memory import memory
from edgeflock.common.payload.package import IDENTITY, Kind, Package, Section
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.accumulate import Accumulators
from edgeflock.methods.kit.base import Bundles, ClientHalf
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, Round, Setting, State
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.learning.fold import SpooledUpdate

CLASSES, CLIENTS = 10, 4
COSTS = {"round_s": 1.0, "train_s": 0.5}


def samples(count: int, shape: tuple[int, ...], seed: int = 1) -> LocalData:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand((count, *shape), generator=generator)
    return LocalData(x, torch.randint(CLASSES, (count,), generator=generator))


class Held:
    """What the server half of pFedMo asks for."""

    def __init__(self, net: Callable[[], Net], shape: tuple[int, ...]) -> None:
        self._bench, self._shape = Workbench(net()), shape

    def workbench(self) -> Workbench:
        return self._bench

    def public_data(self) -> LocalData:
        return samples(8, self._shape, seed=2)

    def score_data(self) -> LocalData:
        return samples(64, self._shape, seed=3)


@dataclass
class Second:
    """One method with one client that has taken part in round 1."""

    name: str
    bench: Workbench
    client: ClientHalf[Any]
    server: Any  # the server half; methods have hooks of their own beside the common ones
    server_state: State
    client_state: State
    received: Mapping[Kind, Tensor]
    plan: Plan
    round: Round

    def local(self, data: LocalData, plan: Plan | None = None) -> Local:
        """Return the client's second local round."""
        return Local(
            self.bench,
            data,
            plan or self.plan,
            seed=1,
            seat=0,
            round=self.round.number,
            received=self.received,
            state=self.client_state,
        )


def second_round(
    name: str, model: str, shape: tuple[int, ...], folder: Path, *, batch: int, momentum: float = 0.0
) -> Second:
    """Play round 1 with one step on one batch, and open round 2."""

    def net() -> Net:
        return models.build(model, input_shape=shape, classes=CLASSES, seed=1)

    made = net()
    bench, method, data = Workbench(made), load(name), samples(batch, shape)
    setting = Setting(
        bench.model.layout, CLASSES, made.features, clients=CLIENTS, seed=1, head=made.head_names()
    )
    params = parse(method.params, {})
    server, client = method.server(params, setting, Held(net, shape)), method.client(params, setting)
    state = State({"model": bench.params.clone(), "buffers": torch.zeros(0), "counters": torch.zeros(0)})
    server.begin(state)
    own = method.training.momentum or momentum
    plan = Plan(lr=0.01, batch_size=batch, momentum=0.0 if method.own_momentum else own, clip=params.clip)
    first = _round(server, state, 1, plan)
    work = Local(
        bench, data, replace(plan, steps=1), seed=1, seat=0, round=1, received=_sent(server, state, first)
    )
    bundles = {kind: flat.clone() for kind, flat in steps.run(client, work).items()}
    if steps.overrides(client, "sent"):
        client.sent(work, bundles)
    kept = State(
        {key: flat.clone() for key, flat in work.new_state.vectors.items()}, dict(work.new_state.scalars)
    )
    sums = Accumulators(server.sums())
    sums.state, sums.round = state, first
    sums.updates = 1
    update = spooled(server, bundles, work.report(), folder / f"{name}.data")
    server.fold(sums, update, float(batch))
    if server.second_walk:
        server.second(sums, update, float(batch))
    server.commit(state, sums, replace(first, costs=COSTS))
    then = _round(server, state, 2, plan)
    received = {kind: flat.clone() for kind, flat in _sent(server, state, then).items()}
    return Second(name, bench, client, server, state, kept, received, plan, then)


def spooled(server: Any, bundles: Bundles, scalars: Mapping[str, float], path: Path) -> SpooledUpdate:
    """Write an update to a file and return it as the fold reads it."""
    layouts = {kind: server.layout(kind) for kind in bundles}
    payload = b"".join(bytes(memory(flat.reshape(-1))) for flat in bundles.values())
    path.write_bytes(payload)
    sections = tuple(
        Section(kind, layout.digest, IDENTITY, layout.elements, layout.size_bytes)
        for kind, layout in layouts.items()
    )
    return SpooledUpdate(0, Package(sections, dict(scalars), extend(0, payload)), path, layouts)


def _round(server: Any, state: State, number: int, plan: Plan) -> Round:
    round = Round(number, plan.lr, (0,), {0: plan.batch_size}, plan=replace(plan, steps=1))
    return replace(round, prepared=server.prepare(state, round))


def _sent(server: Any, state: State, round: Round) -> dict[Kind, Tensor]:
    return {
        **server.broadcast(state, round),
        **server.optional(state, round),
        **server.personal(state, round, 0),
    }
