"""The setup of a run on this device: its method, its model, and the layouts that both ends must agree on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from edgeflock.client.training.base import Base
from edgeflock.common import constants
from edgeflock.common.errors import LayoutMismatch, Undescribed
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload import constant
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.package import Kind
from edgeflock.common.run import RunDescription
from edgeflock.methods.kit import registry
from edgeflock.methods.kit.base import ClientHalf, ServerHalf, Setting
from edgeflock.methods.kit.options import parse


@dataclass(frozen=True, eq=False)
class Setup:
    """What this device makes of the server's description of the run; one for each run that somebody is in."""

    run: RunDescription
    setting: Setting
    half: ClientHalf[Any]
    other_half: ServerHalf[Any]  # asked for layouts only
    layouts: ModelLayouts  # of this device's model
    base: Base  # what is frozen of it
    tokens: bool = False  # which takes whole numbers

    @property
    def run_id(self) -> str:
        return self.run.run_id

    def layout(self, kind: Kind) -> Layout:
        """Return the layout of a bundle, either way."""
        if kind is Kind.BASE:
            return self.layouts.base
        return self.layouts.beside.get(kind) or self.other_half.layout(kind)


def make(run: RunDescription, net: Net, model: FlatModel) -> Setup:
    """Return the setup, or raise LayoutMismatch if this model is not the one that the server means, and
    Undescribed if it was not told enough to say what differs."""
    layouts = model.layouts
    for part in fields(ModelLayouts):
        _compare(
            f"{run.model.name}: {part.name}", getattr(layouts, part.name), getattr(run.layouts, part.name)
        )
    base = Base(model, run.base_digest)
    constant.compare(constants.described(model.constants), run.constants)
    method = registry.load(run.method)
    params = parse(method.params, run.options)
    setting = Setting(
        layouts.parameters, run.model.classes, net.features, run.clients, run.seed, net.head_names()
    )
    halves = method.client(params, setting), method.server(params, setting)
    return Setup(run, setting, *halves, layouts, base, net.tokens)


def _compare(what: str, mine: Layout, theirs: Layout) -> None:
    if mine.digest != theirs.digest:
        if theirs.stated:
            raise Undescribed(f"this client's model and the server's differ in {what}")
        raise LayoutMismatch(
            f"this client's model and the server's differ in {what}: {mine.difference(theirs)}"
        )
