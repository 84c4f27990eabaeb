"""The server's mathematics: the method's server half, the state it moves, and what it sends and receives.

Everything here runs in one thread of its own, never on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from edgeflock.common.errors import CorruptCheckpoint, NonFinite
from edgeflock.common.flat import FlatModel
from edgeflock.common.foreign import foreign
from edgeflock.common.payload import choice
from edgeflock.common.payload.choice import for_kind
from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind
from edgeflock.common.payload.tensorfile import Written
from edgeflock.common.scores import GLOBAL
from edgeflock.common.seeds import derive
from edgeflock.common.tuning.optimizer import SGD, Optimizer
from edgeflock.common.tuning.schedule import CONSTANT, Schedule
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import KEEP_OWN, Effort, Method, Plan, Round, ServerHalf, Setting, State
from edgeflock.methods.kit.options import Params
from edgeflock.methods.kit.order import Order
from edgeflock.methods.kit.tools import Tools
from edgeflock.server.costs.catalogue import SERVER_FLOPS, SIMULATED
from edgeflock.server.costs.clock import Clock
from edgeflock.server.files import packages
from edgeflock.server.files.checkpoints import Checkpoints, Saved
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.learning.fold import Fold, SpooledUpdate, finite
from edgeflock.server.learning.work import RoundWork, UploadSpec

OWN_RESULT = "personal"  # what a client's own result is called where its buffers are asked for
_USED = "used time"  # in the state: seconds of the simulated clock
LEAST_LR = 1e-12  # below it no weight moves, and what methods divide by it overflows


@dataclass(frozen=True)
class Terms:
    """What holds in every round, before the method has a say."""

    plan: Plan
    lr_decay: float = 1.0
    codec: str = str(IDENTITY)  # of updates
    codec_down: str = str(IDENTITY)
    passes: tuple[int, int] | None = None  # operations of a sample's forward and backward pass, if known
    uncounted: str = ""  # what is not in them, in a sentence
    clock: Clock | None = None  # draws the time of rounds; None: it is measured
    closing_test: bool = False  # the clients test models when training is over
    tests_only: bool = False  # every round is such a test, and nothing is trained
    keeps_own: bool = False  # their own ones, too, and no round of training asks all of them
    schedule: Schedule = CONSTANT
    optimizer: Optimizer = SGD  # of the clients' steps


class Learner:
    """The state of the run and the operations of a round on it."""

    def __init__(
        self,
        method: Method,
        params: Params,
        setting: Setting,
        layouts: ModelLayouts,
        terms: Terms,
        tools: Tools | None = None,
    ) -> None:
        self.method, self.params, self.setting, self.layouts = method, params, setting, layouts
        self.half = method.server(params, setting, tools)
        self.state = State()
        self.written: Written | None = None  # of the checkpoint that holds `state`
        self._terms, self._plan = terms, terms.plan
        self._up, self._down = choice.parse(terms.codec), choice.parse(terms.codec_down)
        self._fold = Fold(self.half, layouts, lambda samples: method.weight(params, samples))
        self._frozen = torch.zeros(0)  # what no round changes of the model
        self._own = 0  # numbers that every client keeps as its own
        self._own_joins = False  # whether clients keep statistics of BatchNorm as their own
        self._base: Broadcast | None = None
        self._stepped = 0  # the round whose commit has been computed
        self._metrics: dict[str, float] = {}  # of that commit
        self.operations = lru_cache(maxsize=1024)(self._operations)  # most clients do the same every round

    # --------------------------------------------------------------------------------- the state

    def begin(self, model: FlatModel) -> None:
        """Make the state before the first round."""
        self.state.vectors.update(model=model.params, buffers=model.buffers, counters=model.counters)
        self._frozen, self._own, self._own_joins = model.base, model.own.numel(), model.own_joins
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

    def result_state(self) -> State:
        """Return the state that goes with the result: its buffers in place of the latest."""
        buffers = self.half.buffers(self.state, "global")
        return State({**self.state.vectors, "buffers": buffers}, self.state.scalars)

    @property
    def uncounted(self) -> str:
        """Which of the model's operations the ledger does not count, in a sentence; nothing if it does."""
        return self._terms.uncounted

    def described(self) -> dict[str, str]:
        """Return the size of the model and the operations of one sample's passes, for the journal."""
        told = {"parameters": self.setting.layout.elements}
        if stays := self._frozen.numel() - self._own:
            told["frozen"] = stays
        if self._own:
            told["own"] = self._own
        if self._terms.passes is not None:
            told |= dict(zip(("forward_flops", "backward_flops"), self._terms.passes, strict=True))
        return {name: str(number) for name, number in told.items()}

    def _operations(
        self, *, steps: int, samples: int, held: int, forward: int = 0, backward: int = 0
    ) -> Mapping[str, float]:
        """Return what a client's local round took: `flops`, the part that is the method's own, and the part
        of that which is passes through the model.

        `samples` are those of all steps together, `held` those that the client has, `forward` and `backward`
        those that passed through the model and back; of a client that does not count them, what its method
        usually needs.
        """
        if self._terms.passes is None:
            return {}
        elements, features = self.setting.layout.elements, self.setting.features
        effort = Effort(elements, features, *self._terms.passes, steps=steps, samples=samples, held=held)
        passes = float(self.method.extra_flops(self.params, effort.bare())) if steps else 0.0
        vectors = float(self.method.extra_flops(self.params, effort.still())) if steps else 0.0
        vectors += effort.vectors(self._terms.optimizer.operations)
        if forward:
            passes = float(forward) * effort.forward + float(backward) * effort.backward - effort.training()
        own = passes + vectors
        return {"flops": float(effort.training()) + own, "method_flops": own, "method_pass_flops": passes}

    # --------------------------------------------------------------------------------- opening

    def plan(self, round: Round) -> Plan:
        """S1, or S7 for the closing task. A function of the committed state."""
        if round.closing:
            plan = self._closing() or Plan(lr=round.lr)
            return replace(plan, steps=0, batch_size=self._plan.batch_size)
        plan = self.half.plan(self.state, replace(self._plan, lr=round.lr, clip=self.params.clip), round)
        return plan.with_flags(**{KEEP_OWN: 1.0}) if self._terms.keeps_own else plan

    def _closing(self) -> Plan | None:
        """Return the plan of the closing task: the method's, or one that only tests."""
        own = self.half.closing(self.state)
        tests = self._terms.closing_test or self._terms.tests_only
        return Plan(lr=0.0) if own is None and tests else own

    @property
    def closing_tests(self) -> bool:
        """Whether the closing task tests clients' own models and nothing else."""
        return self.half.closing_tests or self.half.closing(self.state) is None

    @property
    def closes(self) -> bool:
        """Whether there may be a closing task."""
        return self.method.closes or self._terms.closing_test

    def round(
        self, number: int, cohort: Collection[int], samples: Mapping[int, int], *, closing: bool = False
    ) -> Round:
        terms, lr = self._terms, self._plan.lr
        lr = max(lr * terms.lr_decay ** (number - 1) * terms.schedule.factor(number), min(lr, LEAST_LR))
        tests = closing or terms.tests_only
        return Round(number, lr, tuple(sorted(cohort)), dict(samples), closing=tests)

    def wants_no(self, round: Round) -> str:
        """Return why the method wants no such round, or no closing task; empty if it does."""
        if round.closing:
            return "" if self._closing() is not None else "there is nothing to ask"
        return self.plan(round).stop

    def open(self, round: Round, checkpoint: Path | str, scratch: Path | str) -> RoundWork:
        """Make what goes down; `scratch` is a folder for encoded packages."""
        self.begin_fold(round)
        optional = self.half.optional(self.state, round)
        return RoundWork(
            round=round,
            plan=self.plan(round),
            uploads=self._uploads(round),
            shared=self._shared(round, checkpoint, f"{scratch}/shared.package"),
            optional=self._encode(optional, round, f"{scratch}/optional.package") if optional else None,
            personal=bool(self.half.personal_kinds(round)),
            scalars=self.half.closing_scalars if round.closing else self.half.scalars,
            base=self.based(f"{scratch}/base.package"),
        )

    def expected(self, round: Round) -> dict[str, float]:
        """Return what a round will take, where that is foreseen: bytes, and seconds if they are drawn."""
        found = {"bytes": float(self.expected_bytes(round))}
        if self._terms.clock is not None:
            plan, seats = self.plan(round), set(round.cohort) & round.samples.keys()
            orders = [Order(round.samples[seat], plan.batch_size, 0, seat, self._joins) for seat in seats]
            steps = [order.steps(epochs=plan.epochs, steps=plan.steps) for order in orders]
            found["time"] = sum(
                self._terms.clock.drawn(self.setting.seed, round.number, max(steps, default=0))
            )
        return found

    @property
    def _joins(self) -> bool:
        """Whether a last batch of one sample is joined to the one before, as with BatchNorm."""
        counted = (spec.name.endswith("num_batches_tracked") for spec in self.layouts.counters.tensors)
        return self._own_joins or any(counted)

    def simulated(self) -> dict[str, float]:
        """Return the time that is used by the simulated clock, where it counts in place of ours."""
        return {} if self._terms.clock is None else {"time": self.state.scalars.get(_USED, 0.0)}

    def expected_bytes(self, round: Round) -> int:
        """Return the payload of a round, at most, and of the closing task that the run still needs.

        Both ways, if everybody fetches all there is and delivers.
        """
        if self.method.central:
            return 0
        bundles = self._with_buffers(self.half.broadcast(self.state, round))
        kinds = [*bundles, *self.half.optional(self.state, round), *self.half.personal_kinds(round)]
        down = sum(self._largest_down(kind) for kind in kinds)
        each = down + sum(spec.largest for spec in self._uploads(round))
        if round.closing and self.closing_tests:
            return 0  # which is no cost
        if round.closing or self._closing() is None:
            return len(round.cohort) * each
        following = replace(round, number=round.number + 1, closing=True, cohort=tuple(sorted(round.samples)))
        return len(round.cohort) * each + self.expected_bytes(following)

    def _largest_down(self, kind: Kind) -> int:
        layout = self._layout(kind)
        return coding.largest(for_kind(self._down, kind), layout.elements, layout.dtype)

    def personal(self, work: RoundWork, seat: int, scratch: Path | str) -> Broadcast:
        """S3: form one client's package when it is asked for."""
        bundles = self.half.personal(self.state, work.round, seat)
        return self._encode(bundles, work.round, f"{scratch}/personal-{seat:06d}.package", seat)

    def _uploads(self, round: Round) -> tuple[UploadSpec, ...]:
        if round.closing:
            return ()
        specs = [
            UploadSpec(kind, self.half.layout(kind), for_kind(self._up, kind))
            for kind in self.half.uploads(round)
        ]
        for kind, layout in self.layouts.beside.items():
            if layout.elements:
                specs.append(UploadSpec(kind, layout, IDENTITY))
        return tuple(specs)

    def _shared(self, round: Round, checkpoint: Path | str, path: str) -> Broadcast:
        bundles = self.half.broadcast(self.state, round)
        plain = set(bundles) == {Kind.MODEL} and bundles[Kind.MODEL] is self.state.model
        if plain and self.written is not None and self._down == IDENTITY:
            return packages.of_checkpoint(checkpoint, self.written, self.layouts)
        return self._encode(self._with_buffers(bundles), round, path)

    def based(self, path: str) -> Broadcast | None:
        """Return what is frozen, written once in a life: its file stays good when the round's folder goes."""
        if self._base is None and self._frozen.numel():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            parts = {Kind.BASE: (self._frozen, self.layouts.base, IDENTITY)}
            self._base = packages.of_pieces(
                path, pack(parts, {}, lambda kind: torch.Generator()), shared=True
            )
        return self._base

    def _with_buffers(self, bundles: Mapping[Kind, Tensor]) -> dict[Kind, Tensor]:
        extra = {Kind.COUNTERS: self.state.vectors["counters"], Kind.BUFFERS: self.state.vectors["buffers"]}
        return {**{kind: flat for kind, flat in extra.items() if flat.numel()}, **bundles}

    def _encode(self, bundles: Mapping[Kind, Tensor], round: Round, path: str, seat: int = -1) -> Broadcast:
        packed = {
            kind: (flat.reshape(-1), self._layout(kind), for_kind(self._down, kind))
            for kind, flat in bundles.items()
        }

        def generator(kind: Kind) -> torch.Generator:
            return torch.Generator().manual_seed(derive(self.setting.seed, "down", seat, round.number, kind))

        os.makedirs(os.path.dirname(path), exist_ok=True)
        return packages.of_pieces(path, pack(packed, {}, generator), shared=seat < 0)

    def _layout(self, kind: Kind) -> Layout:
        return self.layouts.beside.get(kind) or self.half.layout(kind)

    # --------------------------------------------------------------------------------- what devices keep

    @property
    def forms_own_results(self) -> bool:
        """Whether every client has a result of its own, which the server forms."""
        return type(self.half).result_of is not ServerHalf.result_of

    def keepsake(self, state: State, seat: int, path: str) -> Broadcast | None:
        """Write a state's result as a client keeps it, exact, with its buffers; None: there is none here."""
        model = self.half.result_of(state, seat) if self.forms_own_results else None
        if model is None and not self.half.has_result:
            return None
        result = self.half.result(state) if model is None else model
        name = GLOBAL if model is None else OWN_RESULT
        bundles = {
            Kind.COUNTERS: (state.vectors["counters"], self.layouts.counters),
            Kind.MODEL: (result.reshape(-1), self.layouts.parameters),
            Kind.BUFFERS: (self.half.buffers(state, name), self.layouts.buffers),
        }
        parts = {kind: (flat, layout, IDENTITY) for kind, (flat, layout) in bundles.items() if flat.numel()}
        packed = pack(parts, {}, lambda kind: torch.Generator())
        return packages.of_pieces(path, packed, shared=model is None)

    # --------------------------------------------------------------------------------- closing

    def update_layouts(self, round: Round) -> dict[Kind, Layout]:
        return {spec.kind: spec.layout for spec in self._uploads(round)}

    def begin_fold(self, round: Round) -> None:
        self._fold.open(self.state, round)

    def advance(self, cohort: Collection[int], updates: Mapping[int, SpooledUpdate]) -> None:
        """Fold ahead while the round is open."""
        self._fold.advance(cohort, updates)

    def fold(self, counted: Collection[int], updates: Mapping[int, SpooledUpdate]) -> dict[int, Verdict]:
        """Fold the counted set; return those of it that are left out.

        Raises NonFinite if what was prepared, or the sum, is not finite.
        """
        prepared, number = self._fold.round.prepared, self._fold.round.number
        if prepared is not None and not all(map(finite, prepared.vectors.values())):
            raise NonFinite(
                f"round {number}: what {self.method.name} trains on the server holds NaN or infinity"
            )
        try:
            return self._fold.finish(counted, updates)
        except NonFinite as error:
            raise NonFinite(f"round {number} of {self.method.name}: {error}") from None

    def prepares(self, round: Round) -> bool:
        """Whether the method has long work while that round is open."""
        return not round.closing and type(self.half).prepare is not ServerHalf.prepare

    def prepare(self, round: Round) -> bool:
        """S0: runs beside the open round, in any thread; return False if it was cut short by `hurry`."""
        if not self.prepares(round):
            return True
        with foreign(f"what {self.method.name} trains on the server"):
            prepared = self.half.prepare(self.state, replace(round, plan=self.plan(round)))
        self._fold.round = replace(round, prepared=prepared)
        return prepared is not None

    def hurry(self) -> None:
        """End what is long: the process goes down, and the round will be repeated."""
        self.half.going = False

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
        total = self._fold.total
        if round.closing:
            answered = replace(round, cohort=tuple(self._fold.folded))
            return self.half.commit_closing(self.state, total.sums, answered) or {}
        metrics = {"loss": total.loss / total.samples} if total.samples else {}
        drawn = self._drawn(round.number)
        if total.sums.updates:
            self._average_buffers()
            told = replace(round, prepared=self._fold.round.prepared, costs={**round.costs, **drawn})
            metrics |= self.half.commit(self.state, total.sums, told) or {}
        if drawn:
            metrics[SIMULATED.name] = drawn["round_s"]
            self.state.scalars[_USED] = drawn["time"]
        return metrics

    def own_operations(self) -> dict[str, float]:
        """Return what the fold of the last round took, with what the method computed on the server for it.

        Nothing where the passes of the model are not known and there were some.
        """
        sums, prepared = self._fold.total.sums, self._fold.round.prepared
        did = prepared.scalars if prepared is not None else {}
        if not did and not sums.forward_samples:
            return {SERVER_FLOPS.name: float(sums.operations)}
        if self._terms.passes is None:
            return {}
        trained = self._operations(
            steps=int(did.get("steps", 0)),
            samples=int(did.get("samples", 0)),
            held=0,
            forward=int(did.get("forward", 0)),
            backward=int(did.get("backward", 0)),
        )
        scored = sums.forward_samples * self._terms.passes[0]
        return {SERVER_FLOPS.name: sums.operations + scored + trained["flops"]}

    def _drawn(self, round: int) -> dict[str, float]:
        """Return what the simulated clock says of the folded round in place of what was measured: a round
        lasts as long as who has most to do."""
        if self._terms.clock is None:
            return {}
        steps, rest = self._terms.clock.drawn(self.setting.seed, round, self._fold.total.steps)
        used = self.simulated()["time"] + steps + rest
        return {"train_s": steps, "round_s": steps + rest, "time": used}

    def _average_buffers(self) -> None:
        if self.layouts.buffers.elements:
            self.state.vectors["buffers"].copy_(self._fold.total.sums.mean("buffers"))
        if self.layouts.counters.elements:
            self.state.vectors["counters"].copy_(self._fold.total.counters)

    def state_after(self, round: int, checkpoints: Checkpoints, digests: tuple[str, str] | None) -> State:
        """Return the state after a committed round: this one, or what the disk has of an earlier one.

        Raises CorruptCheckpoint.
        """
        if round == self._stepped:
            return self.state
        if digests is None:
            raise CorruptCheckpoint(f"the journal names no checkpoint of round {round}")
        found = State({name: torch.empty_like(vector) for name, vector in self.state.vectors.items()})
        checkpoints.load(round, found, digests)
        return found
