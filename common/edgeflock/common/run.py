"""A run as both ends know it: all that the server says of it once, and no round changes. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.common.payload.constant import Constant
from edgeflock.common.payload.layout import ModelLayouts
from edgeflock.common.plugins.digest import Code
from edgeflock.common.tuning.tuning import NOTHING, Tuning

CUSTOM = "custom"  # in place of a model's name: every end has the operator's own


@dataclass(frozen=True)
class ModelDescription:
    """What a model is made of: with the same seed, the same description makes the same numbers."""

    name: str  # a model of the package, or CUSTOM
    input_shape: tuple[int, ...]
    classes: int  # or outputs, of a task that has none
    arguments: Mapping[str, str] = field(default_factory=dict)
    task: str = "classification"  # a task of the package, of a plug-in, or package.module:NAME


@dataclass(frozen=True)
class DataDescription:
    """Which samples the clients have of a data set."""

    dataset: str
    partition: str
    seed: int
    shards: int
    samples_per_client: int  # 0: as many as the partition gives
    public_fraction: float  # held back for the server before the cut: runs of an earlier edgeflock
    public_from_shards: float = 0.0  # the server's share, taken out of the shards after the cut


@dataclass(frozen=True)
class RunDescription:
    """A run from its start to its end."""

    run_id: str
    epoch: int  # raised when the server had to go back to an older state
    seed: int
    method: str
    options: Mapping[str, str]  # of the method, as text
    model: ModelDescription
    layouts: ModelLayouts  # of the server's model
    data: DataDescription | None  # None: every client brings its own
    clients: int  # seats
    constants: tuple[Constant, ...] = ()  # of the server's model: they never travel
    augment: str = "none"  # what is done to the pictures of a step, such as flip,crop:4
    tuning: Tuning = NOTHING
    code: tuple[Code, ...] = ()  # the plug-ins that it names, as they are at the server
    base_digest: bytes = b""  # of what is frozen of the server's model; empty: nothing is
