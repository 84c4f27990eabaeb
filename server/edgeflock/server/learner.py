"""The server's mathematics: the method's server half, the state it moves, and what it sends and receives.

Everything here runs in one thread of its own, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from edgeflock.common import choice, codecs
from edgeflock.common.bundle import FlatModel
from edgeflock.common.choice import for_kind
from edgeflock.common.errors import NonFinite
from edgeflock.common.layout import Layout
from edgeflock.common.pack import pack
from edgeflock.common.package import IDENTITY, CodecChoice, Kind
from edgeflock.common.seeds import derive
from edgeflock.common.tensorfile import Written
from edgeflock.methods.base import Method, Plan, Round, ServerHalf, Setting, State
from edgeflock.methods.options import Params
from edgeflock.methods.tools import Tools
from edgeflock.server import broadcast
from edgeflock.server.broadcast import Broadcast
from edgeflock.server.checkpoint import Checkpoints, ModelLayouts, Saved
from edgeflock.server.events import Verdict
from edgeflock.server.fold import Fold, SpooledUpdate, finite


@dataclass(frozen=True)
class UploadSpec:
    """One bundle that an update must hold."""

    kind: Kind
    layout: Layout
    codec: CodecChoice

    @property
    def largest(self) -> int:
        return codecs.largest(self.codec, self.layout.elements, self.layout.dtype)


@dataclass(frozen=True, eq=False)
class RoundWork:
    """What an open round asks of its clients."""

    round: Round
    plan: Plan
    uploads: tuple[UploadSpec, ...]
    shared: Broadcast
    optional: Broadcast | None
    personal: bool

    @cached_property
    def layouts(self) -> dict[Kind, Layout]:
        """The layouts of an update's bundles."""
        return {spec.kind: spec.layout for spec in self.uploads}

    @property
    def upload_limit(self) -> int:
        return sum(upload.largest for upload in self.uploads)


class Learner:
    """The state of the run and the operations of a round on it."""

    def __init__(
        self,
        method: Method,
        params: Params,
        setting: Setting,
        layouts: ModelLayouts,
        plan: Plan,
        *,
        lr_decay: float,
        codec: str,
        codec_down: str,
        tools: Tools | None = None,
    ) -> None:
        self.method, self.params, self.setting, self.layouts = method, params, setting, layouts
        self.half = method.server(params, setting, tools)
        self.state = State()
        self.written: Written | None = None  # of the checkpoint that holds `state`
        self._plan, self._lr_decay = plan, lr_decay
        self._up, self._down = choice.parse(codec), choice.parse(codec_down)
        self._fold = Fold(self.half, layouts, lambda samples: method.weight(params, samples))
        self._stepped = 0  # the round whose commit has been computed
        self._metrics: dict[str, float] = {}  # of that commit

    # --------------------------------------------------------------------------------- the state

    def begin(self, model: FlatModel) -> None:
        """Make the state before the first round."""
        self.state.vectors.update(model=model.params, buffers=model.buffers, counters=model.counters)
        self.half.begin(self.state)

    def save(self, checkpoints: Checkpoints, round: int) -> Saved:
        saved = checkpoints.save(round, self.state)
        self.written = saved.model
        return saved

    def load(self, checkpoints: Checkpoints, round: int, digests: tuple[str, str]) -> None:
        self.written = checkpoints.load(round, self.state, digests).model
        self._stepped = round

    def result(self) -> Tensor:
        return self.half.result(self.state)

    # --------------------------------------------------------------------------------- opening

    def plan(self, round: Round) -> Plan:
        """S1. A function of the committed state."""
        return self.half.plan(self.state, replace(self._plan, lr=round.lr, clip=self.params.clip), round)

    def round(self, number: int, cohort: Collection[int], samples: Mapping[int, int]) -> Round:
        lr = self._plan.lr * self._lr_decay ** (number - 1)
        return Round(number=number, lr=lr, cohort=tuple(sorted(cohort)), samples=dict(samples))

    def open(self, round: Round, checkpoint: Path, scratch: Path) -> RoundWork:
        """Make what goes down; `scratch` is a folder for encoded packages."""
        self.begin_fold(round)
        optional = self.half.optional(self.state, round)
        return RoundWork(
            round=round,
            plan=self.plan(round),
            uploads=self._uploads(round),
            shared=self._shared(round, checkpoint, scratch / "shared.package"),
            optional=self._encode(optional, round, scratch / "optional.package") if optional else None,
            personal=bool(self.half.personal_kinds(round)),
        )

    def personal(self, work: RoundWork, index: int, scratch: Path) -> Broadcast:
        """S3: form one client's package when it is asked for."""
        bundles = self.half.personal(self.state, work.round, index)
        return self._encode(bundles, work.round, scratch / f"personal-{index:06d}.package", index)

    def _uploads(self, round: Round) -> tuple[UploadSpec, ...]:
        specs = [
            UploadSpec(kind, self.half.layout(kind), for_kind(self._up, kind))
            for kind in self.half.uploads(round)
        ]
        for kind, layout in ((Kind.BUFFERS, self.layouts.buffers), (Kind.COUNTERS, self.layouts.counters)):
            if layout.elements:
                specs.append(UploadSpec(kind, layout, IDENTITY))
        return tuple(specs)

    def _shared(self, round: Round, checkpoint: Path, path: Path) -> Broadcast:
        bundles = self.half.broadcast(self.state, round)
        plain = set(bundles) == {Kind.MODEL} and bundles[Kind.MODEL] is self.state.model
        if plain and self.written is not None and self._down == IDENTITY:
            return broadcast.of_checkpoint(checkpoint, self.written, self.layouts)
        return self._encode(self._with_buffers(bundles), round, path)

    def _with_buffers(self, bundles: Mapping[Kind, Tensor]) -> dict[Kind, Tensor]:
        extra = {Kind.COUNTERS: self.state.vectors["counters"], Kind.BUFFERS: self.state.vectors["buffers"]}
        return {**{kind: flat for kind, flat in extra.items() if flat.numel()}, **bundles}

    def _encode(self, bundles: Mapping[Kind, Tensor], round: Round, path: Path, index: int = -1) -> Broadcast:
        packed = {
            kind: (flat.reshape(-1), self._layout(kind), for_kind(self._down, kind))
            for kind, flat in bundles.items()
        }

        def generator(kind: Kind) -> torch.Generator:
            return torch.Generator().manual_seed(derive(self.setting.seed, "down", index, round.number, kind))

        path.parent.mkdir(parents=True, exist_ok=True)
        return broadcast.of_pieces(path, pack(packed, {}, generator), shared=index < 0)

    def _layout(self, kind: Kind) -> Layout:
        own = {Kind.BUFFERS: self.layouts.buffers, Kind.COUNTERS: self.layouts.counters}
        return own[kind] if kind in own else self.half.layout(kind)

    # --------------------------------------------------------------------------------- closing

    def update_layouts(self, round: Round) -> dict[Kind, Layout]:
        return {spec.kind: spec.layout for spec in self._uploads(round)}

    def begin_fold(self, round: Round) -> None:
        self._fold.open(self.state, round)

    def advance(self, cohort: Collection[int], updates: Mapping[int, SpooledUpdate]) -> None:
        """Fold ahead while the round is open."""
        self._fold.advance(cohort, updates)

    def fold(self, counted: Collection[int], updates: Mapping[int, SpooledUpdate]) -> dict[int, Verdict]:
        """Fold the counted set; return those of it that are left out."""
        return self._fold.finish(counted, updates)

    @property
    def prepares(self) -> bool:
        """Whether the method has long work while a round is open."""
        return type(self.half).prepare is not ServerHalf.prepare

    def prepare(self, round: Round) -> None:
        """S0: runs while the round is open."""
        self._fold.sums.round = replace(round, prepared=self.half.prepare(self.state, round))

    def step(self, round: Round) -> dict[str, float]:
        """Move the state by the folded round; does nothing when called again for the same round.

        Raises NonFinite if the new state is not finite.
        """
        if self._stepped == round.number:
            return self._metrics
        self._stepped = round.number
        self._metrics = self._move(round)
        if not all(map(finite, self.state.vectors.values())):
            raise NonFinite(
                f"round {round.number}: the new state of {self.method.name} holds NaN or infinity"
            )
        return self._metrics

    def _move(self, round: Round) -> dict[str, float]:
        metrics = {"loss": self._fold.loss / self._fold.samples} if self._fold.samples else {}
        if self._fold.sums.updates:
            self._average_buffers()
            prepared = self._fold.sums.round.prepared
            metrics |= self.half.commit(self.state, self._fold.sums, replace(round, prepared=prepared))
        return metrics

    def _average_buffers(self) -> None:
        if self.layouts.buffers.elements:
            self.state.vectors["buffers"].copy_(self._fold.sums.mean("buffers"))
        if self.layouts.counters.elements:
            self.state.vectors["counters"].copy_(self._fold.counters)

    def models(self) -> Iterator[tuple[str, Tensor]]:
        """S6: what is tested beside the result, each with its name."""
        return self.half.models(self.state)
