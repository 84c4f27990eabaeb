"""A training slot: what one client at a time needs to train and encode, with buffers that are reused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgeflock.client.costs import ExamCost, Passes
from edgeflock.client.protocol import Task, WantedBundle
from edgeflock.client.training.allowance import Allowance
from edgeflock.client.training.data import Member
from edgeflock.client.training.exam import examine, examine_received
from edgeflock.client.training.setup import Setup
from edgeflock.common import seeds
from edgeflock.common.errors import EdgeflockError, LayoutMismatch
from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import Packed, pack
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section
from edgeflock.common.scores import DEVICES, ClientScore
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import KEEP_OWN, OWN_BUFFERS, OWN_MODEL, Bundles
from edgeflock.methods.kit.local import OWN, OWN_COUNTS, Local
from edgeflock.methods.kit.values import State
from edgeflock.methods.kit.workbench import Workbench

RESIDUAL = "residual of delta"  # error feedback of top-k, kept with the method's own state


class Stopped(EdgeflockError):
    """Training was stopped before its end: nobody waits for it any more."""


@dataclass
class Progress:
    """How far a training is; read by another thread, which may ask it to stop."""

    done: int = 0
    total: int = 0
    began_cpu_s: float = 0.0  # of the working thread, when the training began
    cpu_s: float = 0.0  # that the working thread has used for it
    passes: Passes = field(default_factory=Passes)  # what it has computed, once it has ended
    exam: ExamCost = field(default_factory=ExamCost)  # what the test of the client's own model took
    stop: threading.Event = field(default_factory=threading.Event)
    allowance: Allowance = field(default_factory=Allowance)  # used up: the training ends, the update goes


@dataclass(frozen=True)
class Result:
    """One local round: the update, and the state that becomes the client's if it counts (None: as it was)."""

    encoded: Packed
    state: State | None
    scores: tuple[ClientScore, ...] = ()  # of the client's own model, as the task wants them


class Bench:
    """One slot. Clients that train at the same time never share one."""

    def __init__(self, work: Workbench) -> None:
        self._work = work
        self._rooms: dict[Kind, Tensor] = {}  # on the CPU, where bytes arrive
        self._received: dict[Kind, Tensor] = {}
        self._based = False  # whether the model's frozen part is the server's

    def begin(self) -> None:
        """Forget what the last client received."""
        self._received.clear()

    def room(self, setup: Setup, kind: Kind) -> tuple[Tensor, Layout]:
        """Return where a bundle that comes in is put."""
        layout = setup.layout(kind)
        found = self._rooms.get(kind)
        if found is None or found.numel() != layout.elements:
            found = self._rooms[kind] = torch.zeros(layout.elements, dtype=coding.TORCH[layout.dtype])
        return found, layout

    def accept(self, package: Package) -> None:
        """Take note that a package is there, decoded."""
        for section in package.sections:
            self._received[section.kind] = self._rooms[section.kind]

    def base(self, setup: Setup, numbers: Tensor) -> bool:
        """Take what is frozen of the model; return whether it is the server's."""
        return setup.base.offer(numbers, self._work.model)

    def take_base(self, setup: Setup) -> Tensor:
        """Take what has come as the frozen part. Raises LayoutMismatch if it is not what was announced."""
        numbers = self._received.pop(Kind.BASE)
        del self._rooms[Kind.BASE]
        if not self.base(setup, numbers):
            raise LayoutMismatch("the frozen part that came is not the one that the server announced")
        return numbers

    def lasting(self, setup: Setup, state: State) -> dict[str, Tensor]:
        """Return what no round changes of the model, and what the client keeps as its own.

        Raises LayoutMismatch if it is not the server's.
        """
        model, kept = self._work.model, state.vectors
        setup.base.fill(model)
        own = model.own_named(kept.get(OWN), kept.get(OWN_COUNTS))
        found = {name: own.get(name, part) for name, part in model.lasting.items()}
        return {name: part.detach().cpu().clone() for name, part in found.items()}

    def train(self, setup: Setup, member: Member, task: Task, state: State, progress: Progress) -> Result:
        """Train one local round and encode the update; its pieces are valid until the next round here.

        Raises Stopped, LayoutMismatch or another EdgeflockError.
        """
        if Kind.MODEL not in self._received:
            raise LayoutMismatch(f"the task of round {task.round} names no model to start from")
        if not self._based:
            setup.base.fill(self._work.model)
            self._based = True
        work = self._local(setup, member, task, state)
        try:
            return self._train(setup, member, task, work, progress)
        finally:
            done = Passes(work.steps_done, work.samples_done, work.forward_samples, work.backward_samples)
            progress.passes = done

    def _train(self, setup: Setup, member: Member, task: Task, work: Local, progress: Progress) -> Result:
        received = _exam_of_received(member, task, work, progress)
        if task.closing:
            setup.half.close(work)
            scores = (*received, *_exam(setup, member, task, work, progress))
            return Result(self._encode(setup, work, {}, {}), None, scores)
        bundles = self._run(setup, work, progress)
        wanted = {upload.kind: _wanted(setup, upload) for upload in task.uploads}
        _feed_back(work, bundles, wanted)
        encoded = self._encode(setup, work, bundles, wanted)
        if not work.steps_done:
            return Result(encoded, None, received)
        _after_encoding(setup, work, bundles, encoded)
        _keep_own(setup, work)
        scores = (*received, *_exam(setup, member, task, work, progress))
        return Result(encoded, work.new_state, scores)

    def _local(self, setup: Setup, member: Member, task: Task, state: State) -> Local:
        return Local(
            self._work,
            member.data,
            task.plan,
            seed=setup.run.seed,
            seat=member.seat,
            round=task.round,
            received=self._received,
            state=state,
        )

    def _run(self, setup: Setup, work: Local, progress: Progress) -> Bundles:
        progress.total = work.steps_total

        def proceed() -> bool:
            progress.done = work.steps_done
            progress.cpu_s = time.thread_time() - progress.began_cpu_s
            return not progress.stop.is_set() and progress.allowance.lasts()

        bundles = dict(steps.run(setup.half, work, proceed))
        if progress.stop.is_set():
            raise Stopped(f"round {work.round} was stopped after {work.steps_done} steps")
        bundles[Kind.BUFFERS] = work.model.buffers
        bundles[Kind.COUNTERS] = work.model.counters
        return bundles

    def _encode(
        self, setup: Setup, work: Local, bundles: Bundles, wanted: Mapping[Kind, tuple[Layout, CodecChoice]]
    ) -> Packed:
        parts = {}
        for kind, (layout, choice) in wanted.items():
            flat = bundles.get(kind)
            if flat is None:
                if work.steps_done:
                    raise LayoutMismatch(f"the task wants a {kind}, which {setup.run.method} does not make")
                flat = torch.zeros(layout.elements, dtype=coding.TORCH[layout.dtype])  # no step: all is zero
            parts[kind] = (flat.detach().reshape(-1).cpu(), layout, choice)

        def generator(kind: Kind) -> torch.Generator:
            return torch.Generator().manual_seed(
                seeds.derive(work.seed, "codec", work.seat, work.round, kind)
            )

        return pack(parts, work.report(), generator)


def _exam(
    setup: Setup, member: Member, task: Task, work: Local, progress: Progress
) -> tuple[ClientScore, ...]:
    """Return the client's scores, if any are wanted; raises Stopped."""
    own = [name for name in task.scores if name != DEVICES]
    if not own:
        return ()
    with _examining(work, progress):
        return examine(setup.half, work, member.tests, own, lambda: not progress.stop.is_set())


def _exam_of_received(member: Member, task: Task, work: Local, progress: Progress) -> tuple[ClientScore, ...]:
    """Return how the received model does, if that is wanted; raises Stopped."""
    if DEVICES not in task.scores:
        return ()
    with _examining(work, progress):
        return examine_received(work, member.tests, task.scores, lambda: not progress.stop.is_set())


@contextmanager
def _examining(work: Local, progress: Progress) -> Iterator[None]:
    """Count what a test takes; raises Stopped in its end if nobody waits for it any more."""
    began, cpu_s = time.monotonic(), time.thread_time()
    try:
        yield
    finally:
        before = progress.exam
        took = time.monotonic() - began, time.thread_time() - cpu_s
        progress.exam = ExamCost(before.seconds + took[0], before.cpu_s + took[1])
    if progress.stop.is_set():
        raise Stopped(f"round {work.round} was stopped in its exam")


def _wanted(setup: Setup, upload: WantedBundle) -> tuple[Layout, CodecChoice]:
    layout = setup.layout(upload.kind)
    if upload.layout_digest != layout.digest:
        raise LayoutMismatch(f"the server wants a {upload.kind} of another layout than this client's")
    return layout, upload.codec


def _feed_back(work: Local, bundles: Bundles, wanted: Mapping[Kind, tuple[Layout, CodecChoice]]) -> None:
    """Add to the delta what top-k left behind in the rounds before."""
    if work.steps_done and Kind.DELTA in wanted and wanted[Kind.DELTA][1].name == "topk":
        residual = work.state.vectors.get(RESIDUAL)
        if residual is not None:
            bundles[Kind.DELTA].add_(residual)


def _after_encoding(setup: Setup, work: Local, bundles: Bundles, encoded: Packed) -> None:
    """Let the state follow what the server will decode, where it depends on it."""
    mirrored = steps.overrides(setup.half, "sent")
    decoded = {}
    for section, data in _sections(encoded):
        sparse = section.kind is Kind.DELTA and section.codec.name == "topk"
        if mirrored or sparse:
            decoded[section.kind] = _decoded(section, data, bundles[section.kind])
        if sparse:
            work.keep(RESIDUAL, coding.residual(bundles[section.kind], decoded[section.kind]))
    if mirrored:
        setup.half.sent(work, decoded)


def _keep_own(setup: Setup, work: Local) -> None:
    """Keep the trained model where everybody is tested in the end, unless the method itself does."""
    if work.plan.flags.get(KEEP_OWN) and not steps.overrides(setup.half, "own_model"):
        work.keep(OWN_MODEL, work.params)
        if work.model.buffers.numel():
            work.keep(OWN_BUFFERS, work.model.buffers)


def _decoded(section: Section, data: bytes, sent: Tensor) -> Tensor:
    if section.codec.name == "identity":
        return sent
    out = torch.empty(section.elements)
    coding.decode_into(section.codec, data, out)
    return out.to(sent.device)


def _sections(encoded: Packed) -> Iterator[tuple[Section, bytes]]:
    """Yield every section with its bytes; none for identity, whose bytes are the numbers themselves."""
    pieces = iter(encoded.pieces)
    for section in encoded.package.sections:
        left, taken = section.size_bytes, []
        while left:
            taken.append(next(pieces))
            left -= len(taken[-1])
        yield section, b"" if section.codec.name == "identity" else b"".join(taken)
