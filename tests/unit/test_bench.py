"""A training slot: what it refuses to train or to encode, when it stops, and whose numbers lie in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from edgeflock.client.protocol import Task, WantedBundle
from edgeflock.client.training import setup as setups
from edgeflock.client.training.bench import Bench, Progress, Result, Stopped
from edgeflock.client.training.data import Member
from edgeflock.client.training.exam import TestSamples
from edgeflock.client.training.setup import Setup
from edgeflock.common.errors import LayoutMismatch
from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package, Section
from edgeflock.common.run import ModelDescription, RunDescription
from edgeflock.common.scores import LOCAL
from edgeflock.methods.kit.base import KEEP_OWN, OWN_MODEL
from edgeflock.methods.kit.values import Plan, State
from edgeflock.methods.kit.workbench import Workbench
from support.training import bench_of, normed_bench, samples

SHAPE, PLAN = (1, 2, 2), Plan(lr=0.1, batch_size=5, epochs=2)
TOPK = CodecChoice("topk", fraction=0.2)


def setup_of(work: Workbench, method: str = "fedavg", **options: str) -> Setup:
    model = ModelDescription("small", SHAPE, 3)
    run = RunDescription("run1", 0, 7, method, options, model, work.model.layouts, data=None, clients=3)
    return setups.make(run, work.net, work.model)


class Slot:
    """A bench that has received a model."""

    def __init__(self, work: Workbench | None = None, method: str = "fedavg") -> None:
        self.work = work or bench_of("mlp", SHAPE, hidden="4")
        self.setup, self.bench = setup_of(self.work, method), Bench(self.work)
        self.member = Member(2, samples(20, SHAPE), (20,), TestSamples({LOCAL: lambda: samples(600, SHAPE)}))
        self.progress = Progress()
        self._sent = {Kind.MODEL: self.work.params.clone(), Kind.BUFFERS: self.work.model.buffers.clone()}
        self.receive()

    def receive(self) -> None:
        sections = []
        for kind in (Kind.MODEL, Kind.BUFFERS, Kind.COUNTERS):
            room, layout = self.bench.room(self.setup, kind)
            room.copy_(self._sent.get(kind, room))
            sections.append(Section(kind, layout.digest, IDENTITY, layout.elements, layout.size_bytes))
        self.bench.accept(Package(tuple(sections), {}, 0))

    def task(self, *kinds: Kind, codec: CodecChoice = IDENTITY, **more: Any) -> Task:
        uploads = tuple(
            WantedBundle(kind, self.setup.layout(kind).digest, codec) for kind in kinds or (Kind.DELTA,)
        )
        return Task(3, more.pop("plan", PLAN), uploads=uploads, **more)

    def train(self, task: Task, state: State | None = None) -> Result:
        return self.bench.train(self.setup, self.member, task, state or State(), self.progress)


def decoded(result: Result, kind: Kind = Kind.DELTA) -> Tensor:
    pieces = b"".join(map(bytes, result.encoded.pieces))
    start = 0
    for section in result.encoded.package.sections:
        if section.kind is kind:
            out = torch.empty(section.elements)
            coding.decode_into(section.codec, pieces[start : start + section.size_bytes], out)
            return out
        start += section.size_bytes
    raise AssertionError(f"there is no {kind}")


def test_a_room_is_used_again_until_another_size_is_needed() -> None:
    slot = Slot()
    room, layout = slot.bench.room(slot.setup, Kind.MODEL)
    again, _ = slot.bench.room(slot.setup, Kind.MODEL)
    assert again is room
    assert (room.numel(), layout) == (slot.work.params.numel(), slot.work.model.layout)
    other = setup_of(bench_of("mlp", SHAPE, hidden="5"))
    larger, layout = slot.bench.room(other, Kind.MODEL)
    assert larger.numel() == layout.elements > room.numel()
    assert slot.bench.room(slot.setup, Kind.COUNTERS)[0].dtype == torch.int64


def test_what_the_client_before_has_received_is_no_model_of_this_one() -> None:
    slot = Slot()
    slot.train(slot.task())
    slot.bench.begin()
    with pytest.raises(LayoutMismatch, match="the task of round 3 names no model to start from"):
        slot.train(slot.task())


def test_what_it_has_computed_is_known_however_it_ended() -> None:
    slot = Slot()
    slot.train(slot.task())
    assert (slot.progress.passes.steps, slot.progress.passes.samples_done) == (8, 40)
    assert (slot.progress.total, slot.progress.done) == (8, 8 - 1)  # as it was looked at before the last step
    slot.progress = Progress()
    slot.progress.stop.set()
    with pytest.raises(Stopped, match="round 3 was stopped after 0 steps"):
        slot.train(slot.task())
    assert slot.progress.passes.steps == 0


def test_what_is_wanted_of_another_layout_is_refused() -> None:
    slot = Slot()
    task = slot.task()
    with pytest.raises(LayoutMismatch, match="the server wants a delta of another layout"):
        slot.train(replace(task, uploads=(replace(task.uploads[0], layout_digest=b"x" * 16),)))


def test_what_the_method_does_not_make_is_refused_and_is_zero_where_nothing_was_done() -> None:
    slot = Slot(method="fednag")
    slot.setup.layouts.beside[Kind.CONTROL] = slot.work.model.layout  # as of a method that has one
    wanted = slot.task(Kind.DELTA, Kind.CONTROL)
    with pytest.raises(LayoutMismatch, match="the task wants a control, which fednag does not make"):
        slot.train(wanted)
    nothing = slot.train(slot.task(Kind.DELTA, Kind.MOMENTUM, plan=replace(PLAN, steps=0)))
    assert nothing.state is None
    assert not decoded(nothing).any()
    assert not decoded(nothing, Kind.MOMENTUM).any()


def test_what_a_sparse_codec_leaves_is_sent_with_the_next_update() -> None:
    slot = Slot()
    plain = decoded(slot.train(slot.task()))
    slot.receive()
    first = slot.train(slot.task(codec=TOPK))
    assert first.state is not None
    ((name, left),) = first.state.vectors.items()
    torch.testing.assert_close(decoded(first) + left, plain)
    slot.receive()
    second = slot.train(slot.task(codec=TOPK), State({name: torch.full_like(left, 9.0)}, {}))
    assert second.state is not None
    torch.testing.assert_close(decoded(second) + second.state.vectors[name], plain + 9.0)
    slot.receive()
    dense = slot.train(slot.task(), State({name: torch.full_like(left, 9.0)}, {}))
    torch.testing.assert_close(decoded(dense), plain)


def test_a_test_that_nobody_waits_for_is_left_and_its_time_is_known() -> None:
    slot = Slot()
    made = slot.member.tests.of(LOCAL)
    assert made is not None

    def late() -> Any:
        slot.progress.stop.set()
        return made

    slot.member = replace(slot.member, tests=TestSamples({LOCAL: late}))
    with pytest.raises(Stopped, match="round 3 was stopped in its exam"):
        slot.train(slot.task(scores=(LOCAL,)))
    assert slot.progress.exam.seconds > 0
    slot.progress = Progress()
    slot.receive()
    assert slot.train(slot.task()).scores == ()
    assert slot.progress.exam.seconds == 0


def test_the_trained_model_is_kept_where_everybody_is_tested_in_the_end() -> None:
    for flags, kept in (({}, False), ({KEEP_OWN: True}, True)):
        slot = Slot(normed_bench() if kept else None)
        slot.member = replace(slot.member, data=samples(20, (4,)) if kept else slot.member.data)
        result = slot.train(slot.task(plan=replace(PLAN, flags=flags)))
        assert result.state is not None
        assert (OWN_MODEL in result.state.vectors) is kept
        if kept:
            assert torch.equal(result.state.vectors[OWN_MODEL], slot.work.params)
            assert len(result.state.vectors) == 2  # with BatchNorm's statistics
