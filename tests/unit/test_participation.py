"""One client's part in a run, at a desk where nothing is computed: what it does, on which line, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.client.costs import RoundCost, TrainCost
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.deciding.session import Finish
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.link import contact
from edgeflock.client.link.contact import LAST_WORDS_S
from edgeflock.client.link.line import Line
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.transfer import Outgoing
from edgeflock.client.link.trust import Trust
from edgeflock.client.participation import LEAVING_S, PROGRESS_EVERY_S, Participation
from edgeflock.client.protocol import (
    START,
    Generation,
    Interrupted,
    Quarantine,
    ServerRefused,
    Settlement,
    Task,
    Unreached,
    View,
)
from edgeflock.client.training.bench import Progress
from edgeflock.common.errors import CorruptPayload, EdgeflockError
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import Packed, pack
from edgeflock.common.payload.package import IDENTITY, Kind
from edgeflock.common.reason import Reason
from edgeflock.common.tuning.tuning import NOTHING
from edgeflock.common.verdict import Verdict
from edgeflock.common.wire.address import parse_address
from edgeflock.methods.kit.values import State
from edgeflock.v1 import aggregator_pb2 as pb
from support.quick_loop import quickly

SEAT = 2
SEATED = View(round=1, seat=SEAT)


def asked(round: int, **more: Any) -> View:
    return View(round=round, seat=SEAT, task=Task(round), **more)


def update_of(round: int) -> Packed:
    flat = torch.full((3,), float(round))
    parts = {Kind.DELTA: (flat, Layout.single("w", 3), IDENTITY)}
    return pack(parts, {"steps": 7.0}, lambda _: torch.Generator())


def digest_of(round: int) -> bytes:
    return update_of(round).package.digest


def counted(round: int) -> Settlement:
    return Settlement(round, digest_of(round), Verdict.COUNTED)


class StillDesk:
    """Says what it is told to do, and leaves an update when it is let go on."""

    layout_digest, augment, tuning, task = b"l" * 16, "none", NOTHING, "classification"
    cpu_s, temperature_c = 0.5, 41.0

    def __init__(self) -> None:
        self.said: list[str] = []
        self.progress = Progress()
        self.goes_on = asyncio.Event()
        self.trouble: BaseException | None = None
        self.state: State | None = None

    has_news = False

    async def sit(self, seat: int, kept: Kept) -> Any:
        self.said.append(f"sit {seat}")
        return type("Member", (), {"samples": 5, "class_counts": (2, 3)})

    async def train(self, task: Task, kept: Kept, fetch: Any) -> None:
        self.said.append(f"train {task.round}")
        self.progress = Progress(done=1, total=7)
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.said.append(f"left {task.round}")
            raise
        if self.trouble is not None:
            self.goes_on.clear()
            raise self.trouble
        package = update_of(task.round)
        described = Description(task.round, package.package, 5, made_from=task.made_from)
        kept.put(described, TrainCost(train_s=1.5), package, self.state)

    def stop(self) -> None:
        self.said.append("stop")

    def resume(self, cost: TrainCost, steps: int) -> None:
        self.said.append(f"resume {cost.train_s} {steps}")

    def settle(self, round: int) -> RoundCost:
        self.said.append(f"settle {round}")
        return RoundCost(round, 0.0, 1.0, 0.0, 0.0, 1.0, 1000)

    def idle(self) -> AbstractContextManager[None]:
        return nullcontext()

    def was_idle(self, seconds: float) -> None:
        pass

    @contextmanager
    def delivering(self) -> Iterator[None]:
        self.said.append("deliver")
        yield


class Wire(Line):
    """A line whose server takes all that it is told, or does what it is told instead."""

    def __init__(self) -> None:
        super().__init__(cast(Stub, None), b"session", Trust(parse_address("127.0.0.1:1", "--server")))
        self.told: list[pb.ReportRequest] = []
        self.trouble: Exception | None = None
        self.takes_s = 0.0

    async def report(self, request: pb.ReportRequest, within_s: float = 10.0) -> None:
        await asyncio.sleep(self.takes_s)
        if self.trouble is not None:
            raise self.trouble
        self.told.append(request)

    def kinds(self) -> list[str | None]:
        return [request.WhichOneof("report") for request in self.told]


@dataclass
class Deliveries:
    """What becomes of updates on their way: a settlement, None for RECEIVED, or what is raised."""

    answers: list[Settlement | Exception | None] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    carried: list[int | None] = field(default_factory=list)  # of which round costs came with it

    async def __call__(self, stub: Stub, session: bytes, outgoing: Outgoing) -> Settlement | None:
        self.rounds.append(outgoing.entry.round)
        self.carried.append(outgoing.previous.round if outgoing.previous else None)
        outgoing.sent_bytes = outgoing.entry.package.size_bytes
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Place:
    """A client and what it has."""

    desk: StillDesk
    kept: Kept
    part: Participation
    deliveries: Deliveries
    line: Wire = field(default_factory=Wire)
    acting: asyncio.Task[Finish] | None = None

    async def see(self, view: View) -> None:
        """Let it act on a view until it has nothing more to do."""
        self.part.see(view, self.line)
        await self.go_on()

    async def go_on(self) -> None:
        if self.acting is None:
            self.acting = asyncio.create_task(self.part.act(self.line))
        await asyncio.sleep(0.001)

    async def end(self) -> None:
        """Let it end at once, as by a signal."""
        assert self.acting is not None
        self.acting.cancel()
        await asyncio.gather(self.acting, return_exceptions=True)
        assert self.acting.cancelled()
        await self.part.leave()
        self.acting = None

    async def lose(self, why: Exception | None = None) -> BaseException | None:
        """Break the line and begin another one; return what the client says of the old one."""
        assert self.acting is not None
        self.line.lose(why or Interrupted("it broke"))
        (said,) = await asyncio.gather(self.acting, return_exceptions=True)
        self.part.detach()
        self.line, self.acting = Wire(), None
        self.part.enter(1)
        return said if isinstance(said, BaseException) else None

    async def train(self, round: int) -> None:
        """Let it train and deliver that round."""
        await self.see(asked(round))
        self.desk.goes_on.set()
        await self.go_on()
        self.desk.goes_on.clear()

    @property
    def trained(self) -> list[str]:
        return [word for word in self.desk.said if word.startswith("train")]


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> Deliveries:
    made = Deliveries()
    monkeypatch.setattr(contact, "deliver", made)
    return made


@asynccontextmanager
async def place(folder: Path, deliveries: Deliveries) -> AsyncIterator[Place]:
    desk, kept = StillDesk(), Kept("c2", folder, "run1")
    part = Participation("c2", cast(Any, desk), kept, Backoff(Random(1)))
    made = Place(desk, kept, part, deliveries)
    part.enter(1)
    try:
        yield made
    finally:
        await part.stop()
        if made.acting is not None:
            made.acting.cancel()
            await asyncio.gather(made.acting, return_exceptions=True)


# ------------------------------------------------------------------------------- lines come and go


def test_the_view_of_an_old_session_is_acted_on_no_more(tmp_path: Path, deliveries: Deliveries) -> None:
    """Its task may be gone since: a training that has given its slot back begins with the next view."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.see(asked(1))
            on.desk.trouble = Interrupted("another client waits")
            assert on.part.hears
            await on.lose()
            assert not on.part.hears
            on.desk.goes_on.set()
            await on.go_on()
            assert (on.trained, on.line.told) == (["train 1"], [])
            on.desk.trouble = None
            await on.see(asked(1))
            assert on.trained == ["train 1"] * 2
            assert on.line.kinds() == ["ready"]

    quickly(scenario())


def test_a_training_goes_on_over_a_lost_line_and_its_update_is_delivered_on_the_next(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.see(asked(1))
            lost = await on.lose(Interrupted("cut"))
            assert (type(lost), str(lost)) == (Interrupted, "cut")
            on.desk.goes_on.set()
            await on.go_on()
            assert on.deliveries.rounds == []
            await on.see(asked(1))
            assert (on.trained, on.deliveries.rounds) == (["train 1"], [1])

    quickly(scenario())


def test_what_an_earlier_session_was_told_is_told_again(tmp_path: Path, deliveries: Deliveries) -> None:
    """That the data are there, and the update: whoever answers now may have forgotten both."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.train(1)
            await on.see(asked(1))
            assert on.deliveries.rounds == [1]
            assert on.line.kinds() == ["ready"]
            await on.lose()
            await on.see(asked(1))
            assert on.deliveries.rounds == [1, 1]
            await on.see(replace(SEATED, settled=(counted(1),)))
            assert on.line.kinds() == ["ready"]
            assert on.trained == ["train 1"]

    quickly(scenario())


def test_a_round_that_was_answered_is_taken_again_on_another_line_alone(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    """On this one a view may be older than the verdict; on another the server came back from before."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.deliveries.answers = [Settlement(1, b"", Verdict.LATE)]
            await on.train(1)
            await on.see(asked(1))
            assert on.trained == ["train 1"]
            await on.lose()
            await on.see(asked(1))
            assert on.trained == ["train 1"] * 2

    quickly(scenario())


def test_a_verdict_that_came_ahead_of_its_view_is_believed_on_its_line_alone(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.desk.state = State({"a": torch.ones(2)}, {})
            on.deliveries.answers = [counted(1)]
            await on.train(1)
            mine = Generation(1, digest_of(1))
            assert on.kept.generations() == (mine,)
            await on.see(asked(2, standing=START))  # made before the verdict
            assert (on.trained, on.kept.generations()) == (["train 1", "train 2"], (mine,))
            await on.lose()
            await on.see(replace(SEATED, round=2))
            await on.see(asked(2, standing=START))
            assert (on.trained[2:], on.kept.generations()) == (["train 2"], ())

    quickly(scenario())


def test_an_update_that_moved_no_state_says_nothing_of_where_the_state_is(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.deliveries.answers = [counted(1)]
            await on.train(1)
            with capture_logs() as lines:
                await on.see(asked(2, standing=START))
            assert on.trained == ["train 1", "train 2"]
            assert [line["event"] for line in lines] == []

    quickly(scenario())


# ------------------------------------------------------------------------------- tasks


def test_a_task_that_cannot_be_done_is_refused_once_and_tried_again_when_it_is_asked_for_anew(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.desk.trouble = EdgeflockError("no such thing here")
            await on.train(1)
            await on.see(asked(1))
            assert on.trained == ["train 1"]
            (refused,) = [request.refused for request in on.line.told if request.HasField("refused")]
            assert (refused.round, refused.refusal.sentence) == (1, "no such thing here")
            await on.see(SEATED)
            await on.see(asked(1))
            assert on.trained == ["train 1"] * 2

    quickly(scenario())


def test_a_mistake_that_stays_is_a_line_of_the_log_the_first_second_fourth_and_eighth_time(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> list[int]:
        async with place(tmp_path, deliveries) as on:
            with capture_logs() as lines:
                for round in range(1, 10):
                    on.desk.trouble = EdgeflockError("line 4 is no number")
                    await on.train(round)
            return [line["round"] for line in lines if line["event"] == "task_refused"]

    assert quickly(scenario()) == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("out of memory\nat some line"), "training failed: out of memory"),
        (MemoryError(), "training failed: MemoryError"),
    ],
)
def test_what_torch_raises_is_a_refused_task_and_its_first_line(
    tmp_path: Path, deliveries: Deliveries, error: Exception, sentence: str
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.desk.trouble = error
            await on.train(3)
            (refused,) = [request.refused for request in on.line.told if request.HasField("refused")]
            assert (refused.round, refused.refusal.sentence) == (3, sentence)

    quickly(scenario())


def test_what_was_not_to_be_fetched_is_asked_for_again_and_not_before_its_time(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.desk.trouble = ServerRefused(Reason.BUSY, "later", retry_after_ms=3000)
            await on.train(1)
            await asyncio.sleep(2.9)
            assert on.trained == ["train 1"]
            await asyncio.sleep(0.4)
            assert on.trained == ["train 1"] * 2
            assert on.line.kinds() == ["ready"]

    quickly(scenario())


def test_a_training_that_nobody_waits_for_is_stopped_and_the_next_task_taken(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.see(asked(1))
            assert on.part.work == (1, 1, 7)
            with capture_logs() as lines:
                await on.see(SEATED)
            assert on.part.work is None
            assert on.desk.said[-2:] == ["stop", "left 1"]
            assert lines == [{"event": "round_abandoned", "round": 1, "client_id": "c2", "log_level": "info"}]
            await on.see(asked(2))
            assert (on.trained, on.deliveries.rounds) == (["train 1", "train 2"], [])

    quickly(scenario())


def test_an_update_that_was_there_when_its_training_was_stopped_is_delivered(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    """Nobody may wait for it any more: the server says so, and what its verdict is."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.see(asked(1))
            package = update_of(1)
            on.kept.put(Description(1, package.package, 5), TrainCost(), package, None)
            on.deliveries.answers = [Settlement(1, b"", Verdict.LATE)]
            await on.see(replace(SEATED, round=2))
            assert (on.deliveries.rounds, on.kept.entry) == ([1], None)

    quickly(scenario())


def test_what_no_task_has_done_ends_the_part(tmp_path: Path, deliveries: Deliveries) -> None:
    """A disk that fails is no reason to refuse a task."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.desk.trouble = OSError(28, "No space left on device")
            await on.train(1)
            assert on.acting is not None
            with pytest.raises(OSError, match="No space"):
                await on.acting
            on.acting = None
            assert on.line.kinds() == ["ready"]

    quickly(scenario())


def test_how_far_a_training_is_is_told_every_few_seconds_until_its_end(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.see(asked(1))
            await asyncio.sleep(2.5 * PROGRESS_EVERY_S)
            on.desk.progress.total = 0  # not known yet
            await asyncio.sleep(PROGRESS_EVERY_S)
            on.desk.progress.total = 7
            await asyncio.sleep(PROGRESS_EVERY_S)
            told = [request.progress for request in on.line.told if request.HasField("progress")]
            assert [(one.round, one.steps_done, one.steps_total) for one in told] == [(1, 1, 7)] * 3
            assert {(one.cpu_s, one.temperature_c) for one in told} == {(0.5, 41.0)}
            on.desk.goes_on.set()
            await asyncio.sleep(3 * PROGRESS_EVERY_S)
            assert on.line.kinds().count("progress") == 3

    quickly(scenario())


# ------------------------------------------------------------------------------- verdicts


def test_a_verdict_moves_the_state_and_is_told_of_with_what_the_update_took(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    said = "event", "round", "counted", "reason", "samples", "train_s", "bytes_up"

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.desk.state = State({"a": torch.ones(2)}, {})
            await on.train(1)
            with capture_logs() as lines:
                await on.see(asked(1, settled=(counted(1),)))
            assert [tuple(map(line.get, said)) for line in lines] == [
                ("update_settled", 1, True, None, 5, 1.5, 12)
            ]
            assert on.kept.generations() == (Generation(1, digest_of(1)),)
            assert on.kept.entry is None
            await on.see(asked(1))  # a view may be older than what an earlier one has said
            assert on.trained == ["train 1"]
            await on.train(2)
            with capture_logs() as lines:
                await on.see(replace(SEATED, round=2, settled=(Settlement(2, b"", Verdict.LATE),)))
            assert [tuple(map(line.get, said)) for line in lines] == [
                ("update_settled", 2, False, "late", 5, 1.5, 12)
            ]
            assert on.kept.generations() == (Generation(1, digest_of(1)),)
            await asyncio.sleep(5)
            costs = [request.cost.round for request in on.line.told if request.HasField("cost")]
            assert (on.deliveries.carried, costs) == ([None, 1], [2])  # those of the first went with a header

    quickly(scenario())


def test_an_update_that_will_never_be_taken_is_dropped_and_its_round_not_trained_again(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.deliveries.answers = [ServerRefused(Reason.TOO_LARGE, "that is no update")]
            with capture_logs() as lines:
                await on.train(1)
            assert [line["reason"] for line in lines if line["event"] == "update_settled"] == [
                "that is no update"
            ]
            await on.see(asked(1))
            assert (on.trained, on.kept.entry) == (["train 1"], None)

    quickly(scenario())


def test_an_update_that_was_lost_on_the_disk_is_trained_again(tmp_path: Path, deliveries: Deliveries) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.deliveries.answers = [CorruptPayload("the outbox lost bytes of round 1")]
            with capture_logs() as lines:
                await on.train(1)
            assert [line["event"] for line in lines if "reason" in line] == ["outbox_discarded"]
            assert on.deliveries.rounds == [1, 1]

    quickly(scenario())


NOT_OPEN = "round 9 is not open"


def early() -> ServerRefused:
    return ServerRefused(Reason.NO_SUCH_TASK, NOT_OPEN)


def test_a_server_that_has_not_come_as_far_is_asked_now_and_then(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.train(9)
            await on.lose()
            on.deliveries.answers = [early()] * 9
            with capture_logs() as lines:
                await on.see(View(round=5, seat=SEAT))
                assert on.deliveries.rounds == [9, 9]
                await asyncio.sleep(1 + 2 + 4 + 8)
                assert len(on.deliveries.rounds) >= 6  # after 1, 2, 4 and 8 s at the latest
                await asyncio.sleep(1000)
                assert len(on.deliveries.rounds) >= 11
            assert [line["event"] for line in lines if "reason" in line] == ["update_waits"]
            assert (on.trained, on.kept.entry is None) == (["train 9"], False)

    quickly(scenario())


def test_a_server_that_says_no_to_what_it_asks_for_is_asked_soon_again(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    """It had not come as far when the update came, and has meanwhile."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.deliveries.answers = [early()]
            await on.train(9)
            await asyncio.sleep(0.3)  # the first delay of a back-off is shorter
            assert on.deliveries.rounds == [9, 9]

    quickly(scenario())


@pytest.mark.parametrize("epoch", [1, 2], ids=["the round is past", "the server went back since"])
def test_an_update_of_a_round_that_will_not_be_is_dropped(
    tmp_path: Path, deliveries: Deliveries, epoch: int
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.train(9)
            await on.lose()
            on.part.enter(epoch)
            on.deliveries.answers = [early()]
            await on.see(View(round=10 if epoch == 1 else 5, seat=SEAT))
            assert (on.deliveries.rounds, on.kept.entry) == ([9, 9], None)

    quickly(scenario())


def test_an_update_of_the_process_before_goes_on_with_what_it_has_taken(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.train(1)
        async with place(tmp_path, deliveries) as on:
            assert on.desk.said == ["resume 1.5 7"]
            await on.see(asked(1))
            await on.lose()
            assert on.desk.said.count("resume 1.5 7") == 1  # this process has paid for nothing twice
            await on.see(asked(1))
            assert (on.deliveries.rounds, on.trained) == ([1, 1, 1], [])

    quickly(scenario())


# ------------------------------------------------------------------------------- the end


def test_the_end_is_reached_when_the_last_costs_are_taken(tmp_path: Path, deliveries: Deliveries) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.train(1)
            await on.see(replace(SEATED, settled=(counted(1),)))
            on.line.takes_s = LAST_WORDS_S / 2
            on.part.see(replace(SEATED, ending="enough"), on.line)
            assert on.acting is not None
            assert await on.acting == Finish("enough")
            (cost,) = [request.cost for request in on.line.told if request.HasField("cost")]
            assert (cost.round, cost.train_s) == (1, 2.0)  # with what came after the verdict

    quickly(scenario())


def test_who_is_told_to_go_stops_and_tells_what_is_owed_and_does_not_wait_for_long(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.train(1)
            await on.see(asked(2, settled=(counted(1),)))
            before = asyncio.get_running_loop().time()
            on.line.takes_s = LEAVING_S / 2
            await on.end()
            assert on.desk.said[-2:] == ["stop", "left 2"]
            assert on.line.kinds() == ["ready", "cost"]
            assert asyncio.get_running_loop().time() - before == pytest.approx(LEAVING_S / 2)
            on.line.takes_s = 0.0
            await asyncio.sleep(5)
            await on.train(3)
            on.line.takes_s = 1000.0
            await on.see(replace(SEATED, round=3, settled=(counted(3),)))
            before = asyncio.get_running_loop().time()
            await on.end()
            assert asyncio.get_running_loop().time() - before == pytest.approx(LEAVING_S)

    quickly(scenario())


@pytest.mark.parametrize("ending", [None, "enough"])
def test_a_server_that_goes_before_it_hears_of_the_data_has_said_that_the_run_is_over_or_is_lost(
    tmp_path: Path, deliveries: Deliveries, ending: str | None
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            on.line.takes_s, on.line.trouble = 1.0, Unreached("gone")
            await on.see(SEATED)
            if ending:
                on.part.see(replace(SEATED, ending=ending), on.line)
            assert on.acting is not None
            if ending:
                assert await on.acting == Finish("enough")
            else:
                with pytest.raises(Unreached, match="gone"):
                    await on.acting
            assert not on.part.sat
            on.acting = None

    quickly(scenario())


def test_a_client_that_is_told_to_end_ends_and_nothing_of_it_goes_on(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    """A cancellation is swallowed nowhere, whatever is at hand."""

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            await on.see(asked(1))
            await on.end()
            assert on.desk.said[-2:] == ["stop", "left 1"]
            assert asyncio.all_tasks() == {asyncio.current_task()}

    quickly(scenario())


def test_a_quarantine_is_said_when_it_begins_and_when_it_is_over(
    tmp_path: Path, deliveries: Deliveries
) -> None:
    held = replace(SEATED, quarantine=Quarantine(7, "bad updates"))

    async def scenario() -> None:
        async with place(tmp_path, deliveries) as on:
            with capture_logs() as lines:
                for view in (SEATED, held, held, SEATED, SEATED):
                    await on.see(view)
            said = [line["event"] for line in lines if line["event"] != "ready"]
            assert said == ["quarantined", "released"]

    quickly(scenario())
