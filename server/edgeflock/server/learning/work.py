"""What an open round asks of its clients: the work, what comes down, what an update must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import CodecChoice, Kind
from edgeflock.methods.kit.base import Plan, Round
from edgeflock.server.files.packages import Broadcast


@dataclass(frozen=True)
class UploadSpec:
    """One bundle that an update must hold."""

    kind: Kind
    layout: Layout
    codec: CodecChoice

    @property
    def largest(self) -> int:
        return coding.largest(self.codec, self.layout.elements, self.layout.dtype)


@dataclass(frozen=True, eq=False)
class RoundWork:
    """What an open round asks of its clients."""

    round: Round
    plan: Plan
    uploads: tuple[UploadSpec, ...]
    shared: Broadcast
    optional: Broadcast | None
    personal: bool
    scalars: tuple[str, ...] = ()  # the method's own that an update must hold
    scores: tuple[str, ...] = ()  # what clients test their own model on
    base: Broadcast | None = None  # what is frozen of the model, for who has made another
    allowances: Mapping[str, float] = field(default_factory=dict)  # of each client, by resource

    @cached_property
    def layouts(self) -> dict[Kind, Layout]:
        """The layouts of an update's bundles."""
        return {spec.kind: spec.layout for spec in self.uploads}

    @property
    def upload_limit(self) -> int:
        return sum(upload.largest for upload in self.uploads)
