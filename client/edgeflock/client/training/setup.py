"""The setup of a run on this device: its method, its model, and the layouts that both ends must agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgeflock.common.errors import LayoutMismatch, UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import Kind
from edgeflock.common.wire.messages import layout_from_wire
from edgeflock.methods.kit import registry
from edgeflock.methods.kit.base import ClientHalf, ServerHalf, Setting
from edgeflock.methods.kit.options import parse
from edgeflock.v1 import aggregator_pb2 as pb

CUSTOM = "custom"


@dataclass(frozen=True)
class Setup:
    """What this device makes of the server's description of the run."""

    run: pb.Run
    setting: Setting
    half: ClientHalf[Any]
    other_half: ServerHalf[Any]  # asked for layouts only
    buffers: Layout
    counters: Layout

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.run.model.input_shape)

    def layout(self, kind: Kind) -> Layout:
        """Return the layout of a bundle, either way."""
        own = {Kind.BUFFERS: self.buffers, Kind.COUNTERS: self.counters}
        return own[kind] if kind in own else self.other_half.layout(kind)


def build_net(run: pb.Run, custom: str | None) -> Net:
    """Build the model of the run; its initial parameters do not matter here.

    Raises UnknownName, BadValue, or UsageError if the run needs a model of the operator's own.
    """
    spec = run.model
    shape, arguments = tuple(spec.input_shape), dict(spec.arguments)
    if spec.name != CUSTOM:
        return models.build(
            spec.name, input_shape=shape, classes=spec.classes, arguments=arguments, seed=run.seed
        )
    if custom is None:
        raise UsageError("this run has a model of its own: name yours with --model package.module:factory")
    return models.build_custom(
        custom, input_shape=shape, classes=spec.classes, arguments=arguments, seed=run.seed
    )


def make(run: pb.Run, net: Net, model: FlatModel) -> Setup:
    """Return the setup, or raise LayoutMismatch if this model is not the one that the server means."""
    pairs = (
        ("parameters", model.layout, run.model.parameters),
        ("buffers", model.buffers_layout, run.model.buffers),
        ("counters", model.counters_layout, run.model.counters),
    )
    for what, mine, theirs in pairs:
        if mine.elements or theirs.tensors:
            _compare(f"{run.model.name}: {what}", mine, layout_from_wire(theirs))
    method = registry.load(run.method)
    params = parse(method.params, dict(run.options))
    setting = Setting(model.layout, run.model.classes, net.features, run.clients, run.seed, net.head_names())
    return Setup(
        run=run,
        setting=setting,
        half=method.client(params, setting),
        other_half=method.server(params, setting),
        buffers=model.buffers_layout,
        counters=model.counters_layout,
    )


def _compare(what: str, mine: Layout, theirs: Layout) -> None:
    if mine.digest != theirs.digest:
        raise LayoutMismatch(
            f"this client's model and the server's differ in {what}: {mine.difference(theirs)}"
        )
