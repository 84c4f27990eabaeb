"""A client's desk: what is fetched for a task, and what a training is said to have taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from edgeflock.client.costs import ExamCost, Passes, TrainCost
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.protocol import Extent, Generation, Interrupted, Parcel, Task
from edgeflock.client.training import desk as desks
from edgeflock.client.training.bench import Progress, Result
from edgeflock.client.training.desk import Desk
from edgeflock.client.training.gauge import Gauge
from edgeflock.client.training.meter import Meter, peak_rss_bytes
from edgeflock.client.training.span import Span, Spans
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import Package, Scope
from edgeflock.common.sensors import Sensors
from edgeflock.methods.kit.values import Plan, State

DONE = Passes(3, 30, 60, 30)
MADE_FROM = Package((), {"shared": 1.0})
SHARED = Parcel(Scope.SHARED, MADE_FROM)
OPTIONAL = Parcel(Scope.OPTIONAL, Package((), {"optional": 1.0}))
PERSONAL = Parcel(Scope.PERSONAL, None)


@dataclass
class Hands:
    """The trainer and its bench, at which time goes on as it is told."""

    said: list[str] = field(default_factory=list)
    seconds: float = 1000.0
    cpu_s: float = 50.0
    held_up_s: float = 100.0
    lacks: bool = False
    encoded: bool = False
    refreshes_rounds: bool = False
    samples: int = 5
    begun: list[Any] = field(default_factory=list)
    trouble: Exception | None = None
    state: State | None = None
    seen: State | None = None
    exam: ExamCost | None = field(default_factory=lambda: ExamCost(4.0, 3.0))
    allowed: tuple[dict[str, float], dict[str, float]] = ({}, {})

    def __post_init__(self) -> None:
        self.spans = Spans(2, lambda: self.seconds)

    @asynccontextmanager
    async def bench(self, setup: Any) -> AsyncIterator[Any]:
        self.said.append("slot")
        yield self
        self.said.append("slot is free")

    async def run(self, work: Any, *given: Any) -> Any:
        return work(*given)

    async def member(self, setup: Any, client_id: str, seat: int, round: int, begun: Any) -> Any:
        self.said.append(f"data of {seat}" + (f" in round {round}" if round else ""))
        self.begun.append(begun)
        extent = Extent(round, self.samples, f"of {self.samples}") if self.refreshes_rounds else None
        return SimpleNamespace(samples=self.samples, seat=seat, class_counts=(self.samples,), extent=extent)

    async def slot_wanted(self) -> None:
        pass

    def span(self, setup: Any, round: int) -> Span:
        return self.spans.of("run1", round)

    def examined(self, seconds: float) -> None:
        self.said.append(f"exam {seconds:g}")

    def forget_gpu_peak(self) -> None:
        self.said.append("forget")

    def gpu_peak_bytes(self) -> int:
        return 700

    # the bench

    def begin(self) -> None:
        self.said.append("begin")

    def room(self, setup: Any, kind: Any) -> Any:
        return None

    def accept(self, package: Package) -> None:
        self.said.append(f"accept {[*package.scalars]}")

    def train(self, setup: Any, member: Any, task: Task, state: State, progress: Progress) -> Result:
        self.said.append("train")
        self.seen = state
        limits = dict(progress.allowance.limits)
        self.seconds, self.cpu_s, self.held_up_s = self.seconds + 10, self.cpu_s + 8, self.held_up_s + 1.5
        self.allowed = limits, dict(progress.allowance.spent())
        progress.allowance.used_up = "cpu" if limits else ""
        progress.passes = DONE
        progress.exam = self.exam or progress.exam
        if self.trouble is not None:
            raise self.trouble
        return Result(pack({}, {"steps": 3.0}, lambda _: torch.Generator()), self.state)

    # what comes

    async def fetch(self, round: int, parcel: Parcel, room: Any, wish: Any) -> Any:
        self.said.append(f"fetch {parcel.scope}")
        self.seconds += 2
        return SimpleNamespace(
            package=parcel.package or Package((), {"mine": 1.0}), encoded=self.encoded, decode=self._decode
        )

    def _decode(self) -> None:
        self.said.append("decode")


@dataclass
class Room:
    """A desk, and what is around it."""

    hands: Hands
    meter: Meter
    desk: Desk
    kept: Kept

    def do(self, task: Task, *, sits: bool = True) -> None:
        async def scenario() -> None:
            if sits:
                await self.desk.sit(2, self.kept)
            await self.desk.train(task, self.kept, self.hands.fetch)

        asyncio.run(scenario())


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    hands = Hands()
    monkeypatch.setattr(desks, "time", SimpleNamespace(thread_time=lambda: hands.cpu_s))
    gauge = Gauge(Sensors(tmp_path / "no sensors"), watts=2.0)
    meter = Meter(alone=False, clock=lambda: hands.seconds, gauge=gauge)
    layouts = SimpleNamespace(parameters=SimpleNamespace(digest=b"l" * 16))
    setup = SimpleNamespace(layouts=layouts, half=SimpleNamespace(lacks=lambda state, flags: hands.lacks))
    desk = Desk("c2", cast(Any, hands), cast(Any, setup), meter)
    return Room(hands, meter, desk, Kept("c2", tmp_path, "run1"))


def task(*parcels: Parcel, **more: Any) -> Task:
    return Task(3, Plan(lr=0.1), parcels or (SHARED,), **more)


def test_what_a_training_took_goes_with_its_update_and_its_test_is_no_part_of_it(room: Room) -> None:
    room.do(task(allowances={"cpu": 9.0}))
    entry = room.kept.entry
    assert entry is not None
    cost = entry.cost
    assert (cost.train_s, cost.cpu_s, cost.fetch_s) == (6.0, 5.0, 2.0)
    assert (cost.samples_done, cost.forward_samples, cost.backward_samples) == (30, 60, 30)
    assert (cost.exam_s, cost.exam_cpu_s, cost.held_up_s) == (4.0, 3.0, 1.5 + 4.0)
    assert cost.busy_s == 10 - 4 / 2  # of two slots one was testing
    assert (cost.used_up, cost.readings.peak_gpu_bytes) == ("cpu", 700)
    assert (cost.readings.energy_j, cost.readings.exam_j) == (2.0 * 8, 2.0 * 4)
    assert 0 < cost.peak_rss_bytes <= peak_rss_bytes()
    described = entry.description
    assert (described.round, described.samples) == (3, 5)
    assert described.made_from == MADE_FROM.digest
    assert room.hands.allowed == ({"cpu": 9.0}, {"cpu": 8.0, "energy": 2.0 * 12})
    assert room.hands.said[-3:] == ["train", "exam 4", "slot is free"]
    assert room.hands.said.index("forget") < room.hands.said.index("train")
    room.hands.seconds += 5
    whole = room.desk.settle(3)
    assert (whole.fetch_s, whole.train_s, whole.wait_s, whole.exam_s, whole.cpu_s) == (2, 6, 5, 4, 5)
    assert (whole.steps, whole.forward_samples) == (3, 60)


def test_without_a_test_nothing_is_taken_off(room: Room) -> None:
    room.hands.exam = None
    room.do(task())
    entry = room.kept.entry
    assert entry is not None
    cost = entry.cost
    assert (cost.train_s, cost.cpu_s, cost.held_up_s, cost.busy_s) == (10.0, 8.0, 1.5, 10.0)
    assert (cost.exam_s, cost.exam_cpu_s, cost.readings.exam_j, cost.used_up) == (0, 0, None, "")


def test_only_what_is_lacking_is_fetched_of_what_is_optional(room: Room) -> None:
    for lacks in (False, True):
        room.hands.said.clear()
        room.hands.lacks = room.hands.encoded = lacks
        room.do(task(SHARED, OPTIONAL, PERSONAL))
        walk = [word for word in room.hands.said if word.startswith(("begin", "fetch", "accept", "decode"))]
        shared = ["fetch shared", *["decode"] * lacks, "accept ['shared']"]
        optional = ["fetch optional", "decode", "accept ['optional']"] if lacks else []
        personal = ["fetch personal", *["decode"] * lacks, "accept ['mine']"]
        assert walk == ["begin", *shared, *optional, *personal]


def test_it_trains_on_the_state_that_is_kept(room: Room) -> None:
    room.do(task())
    assert room.hands.seen == State()
    room.hands.state = State({"a": torch.ones(2)}, {"x": 7.0})
    room.do(task())
    entry = room.kept.entry
    assert entry is not None
    assert entry.candidate
    room.kept.settle(Generation(3, entry.package.digest))
    room.do(task())
    assert room.hands.seen is not None
    assert room.hands.seen.scalars == {"x": 7.0}


def test_a_task_that_makes_no_sense_or_comes_too_early_takes_no_slot_and_no_byte(room: Room) -> None:
    with pytest.raises(EdgeflockError, match="nonsense"):
        room.do(task(fault=EdgeflockError("nonsense")))
    assert room.hands.said == ["data of 2"]
    room.desk._member = None
    with pytest.raises(RuntimeError, match="before the data were there"):
        room.do(task(), sits=False)
    assert "begin" not in room.hands.said


def test_a_training_that_raises_was_paid_and_leaves_its_slot_and_waits(room: Room) -> None:
    room.hands.trouble = ValueError("of the user's model")
    with pytest.raises(EdgeflockError, match="training failed: ValueError: of the user's model"):
        room.do(task())
    assert room.hands.said[-2:] == ["train", "exam 4"]
    assert room.kept.entry is None
    room.hands.seconds += 5
    cost = room.desk.settle(3)
    assert (cost.fetch_s, cost.train_s, cost.wait_s, cost.cpu_s, cost.steps) == (2, 6, 5, 5, 3)
    assert cost.readings.peak_gpu_bytes == 700


def test_a_fetch_that_breaks_off_was_fetching_and_what_follows_is_waiting(room: Room) -> None:
    async def broken(round: int, parcel: Parcel, place: Any, wish: Any) -> Any:
        room.hands.seconds += 2
        raise Interrupted("another waits")

    async def scenario() -> None:
        await room.desk.sit(2, room.kept)
        await room.desk.train(task(), room.kept, broken)

    with pytest.raises(Interrupted):
        asyncio.run(scenario())
    room.hands.seconds += 5
    cost = room.desk.settle(3)
    assert (cost.fetch_s, cost.train_s, cost.wait_s) == (2, 0, 5)


def test_the_data_of_a_seat_are_read_once(room: Room) -> None:
    async def scenario() -> list[int]:
        return [(await room.desk.sit(seat, room.kept)).seat for seat in (2, 2, 1, 1)]

    assert asyncio.run(scenario()) == [2, 2, 1, 1]
    assert room.hands.said == ["data of 2", "data of 1"]


def test_data_that_are_asked_for_in_every_round_are_noted_and_news_of_them_are_told(room: Room) -> None:
    room.hands.refreshes_rounds = True
    room.do(task())
    assert not room.desk.has_news
    room.hands.samples = 8
    room.do(replace(task(), round=4), sits=False)
    assert room.desk.has_news
    assert room.kept.extent(4) == Extent(4, 8, "of 8")
    assert room.kept.extent(3) is None
    room.do(replace(task(), round=4))  # once more: it goes on with what it was begun with
    assert room.hands.begun == [None, None, None, Extent(4, 8, "of 8")]
    assert not room.desk.has_news
    assert [said for said in room.hands.said if said.startswith("data")] == [
        "data of 2",
        *(f"data of 2 in round {round}" for round in (3, 4, 4)),
    ]


def test_an_update_on_its_way_is_delivering_and_what_nothing_moves_in_is_waiting(room: Room) -> None:
    with room.desk.delivering():
        room.hands.seconds += 7
        with room.desk.idle():
            room.hands.seconds += 2
        room.desk.was_idle(3.0)
    room.hands.seconds += 1
    cost = room.desk.settle(3)
    assert (cost.deliver_s, cost.wait_s) == (4, 2 + 3 + 1)


def test_what_a_process_before_has_spent_is_in_the_round(room: Room) -> None:
    room.desk.resume(TrainCost(train_s=2.0, cpu_s=1.5), 7)
    assert room.desk.cpu_s == 1.5
    cost = room.desk.settle(3)
    assert (cost.train_s, cost.cpu_s, cost.steps) == (2.0, 1.5, 7)


def test_how_far_it_is_tells_of_the_work_at_hand(room: Room) -> None:
    assert (room.desk.temperature_c, room.desk.cpu_s, room.desk.progress.done) == (None, 0.0, 0)
    room.meter.probe.note(61.0, None)
    room.desk.progress = Progress(cpu_s=2.0)
    assert (room.desk.temperature_c, room.desk.cpu_s, room.desk.layout_digest) == (61.0, 2.0, b"l" * 16)
    room.desk.stop()
    assert room.desk.progress.stop.is_set()
