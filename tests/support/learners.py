"""The server's mathematics of a run and the updates that it folds, made in one place for all tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgeflock.common.flat import FlatModel
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.package import Kind, Package
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.tools import Tools
from edgeflock.methods.kit.values import Plan, Setting
from edgeflock.server.costs.clock import parse as parse_clock
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.learner import Learner, Terms


def begun(
    method: str | Method,
    options: Mapping[str, str],
    setting: Setting,
    model: FlatModel,
    layouts: ModelLayouts,
    plan: Plan,
    *,
    lr_decay: float = 1.0,
    codec: str = "identity",
    tools: Tools | None = None,
    clock: str = "real",
) -> Learner:
    """Return a learner with the first state of a run in it."""
    found = load(method) if isinstance(method, str) else method
    params = parse(found.params, options)
    terms = Terms(plan, lr_decay, codec, clock=parse_clock(clock))
    learner = Learner(found, params, setting, layouts, terms, tools)
    learner.begin(model)
    return learner


def spooled(
    seat: int, package: Package, payload: bytes, folder: Path, layouts: Mapping[Kind, Layout]
) -> SpooledUpdate:
    """Write an update's payload to a file of its own and return it as the fold sees it."""
    path = folder / f"{seat}-{package.crc32c}.data"
    path.write_bytes(payload)
    return SpooledUpdate(seat, package, path, layouts)
