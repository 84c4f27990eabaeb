"""What tests of a client half need: data, a workbench, one local round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.base import ClientHalf
from edgeflock.methods.kit.batches import Stock
from edgeflock.methods.kit.local import Local, LocalData
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.order import Order
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, Setting, State
from edgeflock.methods.kit.workbench import Workbench
from support.hand_mlp import Vector

Sample = tuple[Vector, NDArray[np.int64]]


def samples(count: int, shape: tuple[int, ...], classes: int = 3, seed: int = 5) -> LocalData:
    """Return random data; the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((count, *shape), generator=generator)
    return LocalData(x, torch.randint(classes, (count,), generator=generator))


def bench_of(name: str, shape: tuple[int, ...], classes: int = 3, **arguments: str) -> Workbench:
    return Workbench(models.build(name, input_shape=shape, classes=classes, arguments=arguments, seed=3))


class Normed(nn.Module):
    """A small user's model with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.tanh(self.norm(self.first(x))))
        return logits


def normed_bench() -> Workbench:
    torch.manual_seed(1)
    return Workbench(adapt(Normed(), (4,), "mine:factory"))


def half_of(method: str, bench: Workbench, **options: str) -> ClientHalf[Any]:
    """Return a method's client half with its options."""
    found = load(method)
    return found.client(parse(found.params, options), setting_of(bench))


def setting_of(bench: Workbench, clients: int = 4) -> Setting:
    """Return what both halves know of a run with this model."""
    layout, net = bench.model.layout, bench.net
    return Setting(layout, classes=3, features=net.features, clients=clients, seed=3, head=net.head_names())


def broadcast_of(bench: Workbench) -> dict[Kind, Tensor]:
    """Return copies of what the server would send: the model as it stands on the bench, with its buffers."""
    model = bench.model
    return {
        Kind.MODEL: model.params.clone(),
        Kind.BUFFERS: model.buffers.clone(),
        Kind.COUNTERS: model.counters.clone(),
    }


def whole(data: Stock) -> tuple[Tensor, Tensor]:
    """Return all samples, in stored order."""
    return next(data.parts(len(data)))


def batches_of(data: LocalData, plan: Plan, *, round: int = 1, seat: int = 2) -> list[Sample]:
    """Return what a client trains on in a round, for a computation by hand."""
    order = Order(len(data), plan.batch_size, seed=3, seat=seat)
    x, y = data.x.flatten(1).double().numpy(), data.y.numpy()
    chosen = [order.rows(round, step) for step in range(order.steps(epochs=plan.epochs, steps=plan.steps))]
    return [(x[rows], y[rows]) for rows in chosen]


def local_of(
    bench: Workbench,
    data: LocalData,
    plan: Plan,
    *,
    round: int = 1,
    index: int = 2,
    received: Mapping[Kind, Tensor] | None = None,
    state: State | None = None,
) -> Local:
    """Return the context of one local round."""
    sent = broadcast_of(bench) if received is None else received
    return Local(bench, data, plan, seed=3, seat=index, round=round, received=sent, state=state)
