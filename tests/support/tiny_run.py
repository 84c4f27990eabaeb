"""A run of a tiny model without data or training: what tests of the server need of its parts."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeflock.common.payload.choice import parse
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind, Package
from edgeflock.common.run import DataDescription, ModelDescription, RunDescription
from edgeflock.common.scores import ClientScore
from edgeflock.common.wire.messages import package_to_wire
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.values import Plan, Setting
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.learner import Learner
from edgeflock.v1 import aggregator_pb2 as pb
from support.learners import begun, spooled

CLASSES = 3


def layouts(numbers: int = 40) -> ModelLayouts:
    """A model with parameters, a float buffer and a counter."""
    return ModelLayouts(
        parameters=Layout.of([("fc.weight", (numbers - 5,)), ("fc.bias", (5,))]),
        buffers=Layout.of([("bn.running_mean", (3,))]),
        counters=Layout.of([("bn.num_batches_tracked", ())], "int64"),
    )


class Flat:
    """The initial numbers, in place of a module."""

    def __init__(self, of: ModelLayouts) -> None:
        generator = torch.Generator().manual_seed(17)
        self.params = torch.randn(of.parameters.elements, generator=generator)
        self.buffers = torch.randn(of.buffers.elements, generator=generator)
        self.counters = torch.ones(of.counters.elements, dtype=torch.int64)
        self.base, self.own, self.own_joins = torch.zeros(0), torch.zeros(0), False


def learner(
    of: ModelLayouts,
    *,
    method: str | Method = "fedavg",
    clients: int = 3,
    codec: str = "identity",
    **options: str,
) -> Learner:
    """Return the server's mathematics with the initial state in it."""
    setting = Setting(layout=of.parameters, classes=CLASSES, features=4, clients=clients, seed=3)
    model: Any = Flat(of)
    return begun(method, options, setting, model, of, Plan(lr=0.1), lr_decay=0.9, codec=codec)


def describe(of: ModelLayouts, clients: int) -> RunDescription:
    """What a client is told when it joins."""
    model, data = ModelDescription("tiny", (4,), CLASSES), DataDescription("none", "iid", 3, clients, 0, 0.0)
    return RunDescription("tiny", 0, 3, "fedavg", {}, model, of, data, clients)


@dataclass(frozen=True)
class Made:
    """An update as a client would send it."""

    package: Package
    payload: bytes
    scores: tuple[ClientScore, ...] = ()

    def header(self, session: bytes, round: int) -> pb.UpdateHeader:
        return pb.UpdateHeader(
            session=session,
            round=round,
            package=package_to_wire(self.package),
            scores=[pb.ClientScore(**asdict(score)) for score in self.scores],
        )

    def spooled(self, index: int, folder: Path, of: ModelLayouts) -> SpooledUpdate:
        """Write the payload to a file and return the update as the fold sees it."""
        kinds = {Kind.DELTA: of.parameters, Kind.BUFFERS: of.buffers, Kind.COUNTERS: of.counters}
        return spooled(index, self.package, self.payload, folder, kinds)


def update(
    of: ModelLayouts,
    index: int,
    round: int = 1,
    *,
    samples: float = 10,
    delta: Tensor | None = None,
    codec: str = "identity",
    scalars: Mapping[str, float] | None = None,
) -> Made:
    """Return the update of a client in a round: numbers that depend on both and on nothing else."""
    generator = torch.Generator().manual_seed(1000 * round + index)
    numbers = torch.randn(of.parameters.elements, generator=generator)
    buffers = torch.randn(of.buffers.elements, generator=generator)
    counters = torch.full((of.counters.elements,), 10 * round + index)
    bundles = {
        Kind.DELTA: (numbers if delta is None else delta, of.parameters, parse(codec)),
        Kind.BUFFERS: (buffers, of.buffers, IDENTITY),
        Kind.COUNTERS: (counters, of.counters, IDENTITY),
    }
    stated = {"samples": samples, "steps": 2.0, "loss": 0.5 + index, **(scalars or {})}
    encoded = pack(bundles, stated, lambda kind: generator)
    return Made(encoded.package, b"".join(bytes(piece) for piece in encoded.pieces))


def answer(index: int, **scalars: float) -> Made:
    """Return the answer of a client to a closing task: it holds no bundles."""
    stated = {"samples": 10.0 + index, "steps": 0.0, "loss": 0.0, **scalars}
    return Made(pack({}, stated, lambda kind: torch.Generator()).package, b"")


def with_number(made: Made, position: int, value: float) -> Made:
    """Return the update with one float32 of its payload replaced, and its checksum made right."""
    from edgeflock.common.payload.checksum import extend

    payload = bytearray(made.payload)
    payload[4 * position : 4 * position + 4] = struct.pack("<f", value)
    package = Package(made.package.sections, made.package.scalars, extend(0, bytes(payload)))
    return Made(package, bytes(payload))
