"""A session on a shared channel: what breaks it, who closes it, and what is made of the answers on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from edgeflock.client.config import ClientConfig
from edgeflock.client.link import line as lines
from edgeflock.client.link.line import LEAVE_TIMEOUT_S, PATIENCE_S, REPORT_TIMEOUT_S, Channel, Line, Link
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted, Introduction, ServerRefused, Unreached
from edgeflock.client.training import device
from edgeflock.common.errors import LayoutMismatch
from edgeflock.common.reason import Reason
from edgeflock.common.wire.address import parse_address
from edgeflock.common.wire.transport import spoken
from edgeflock.v1 import aggregator_pb2 as pb

TRUST = Trust(parse_address("127.0.0.1:1", "--server"))
NO = pb.Refusal(reason=pb.REASON_WRONG_DATA, sentence="that cannot be")


class Opened:
    """A channel of which it is seen how it was opened, and that it was closed."""

    def __init__(self, trust: Trust, proxy: str = "", *, careful: bool = False) -> None:
        self.proxy, self.careful, self.closed = proxy, careful, 0
        self.stub = SimpleNamespace(cut=False)
        self.users, self.broken = 0, False

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    monkeypatch.setattr(lines, "Channel", Opened)
    return Link(TRUST, "a proxy")


async def used(link: Link, error: BaseException | None = None, *, cut: bool = False) -> Opened:
    """Use the current channel until that breaks its use."""
    seen: list[Opened] = []
    with suppress(Exception):
        async with link.channel() as channel:
            seen.append(cast(Opened, channel))
            channel.stub.cut = cut
            if error is not None:
                raise error
    return seen[0]


BREAKING = [Unreached("reset"), ServerRefused(Reason.ROSTER_FULL, "full"), LayoutMismatch("other")]
HARMLESS = [
    None,
    Interrupted("cut"),
    ServerRefused(Reason.BUSY, "later", temporary=True),
    ServerRefused(Reason.SUPERSEDED, "anew"),
]


@pytest.mark.parametrize("error", [*BREAKING, *HARMLESS], ids=repr)
def test_a_channel_on_which_nothing_is_reached_or_a_stranger_answers_is_used_no_more(
    link: Link, error: Exception | None
) -> None:
    async def scenario() -> None:
        first = await used(link, error)
        second = await used(link)
        breaks = error in BREAKING
        assert (second is not first, first.closed) == (breaks, int(breaks))
        assert (second.closed, first.proxy, first.users) == (0, "a proxy", 0)

    asyncio.run(scenario())


def test_a_broken_channel_is_closed_by_the_last_who_uses_it(link: Link) -> None:
    async def scenario() -> None:
        async with link.channel() as kept:
            shared = cast(Opened, kept)
            assert await used(link, Unreached("reset")) is shared
            assert (shared.closed, shared.users) == (0, 1)
            async with link.channel() as other:
                assert cast(Opened, other) is not shared
                await link.close()
                assert cast(Opened, other).closed == 0  # it is in use
        assert shared.closed == 1
        await link.close()
        assert cast(Opened, other).closed == 1
        assert shared.broken  # for good, however the others leave

    asyncio.run(scenario())


def test_a_link_that_was_never_used_is_closed_too(link: Link) -> None:
    asyncio.run(link.close())


@pytest.mark.parametrize("cut", [False, True])
def test_after_a_cut_download_little_is_let_come_ahead(link: Link, cut: bool) -> None:
    async def scenario() -> None:
        first = await used(link, Unreached("reset"), cut=cut)
        assert (first.careful, (await used(link)).careful) == (False, cut)

    asyncio.run(scenario())


# ------------------------------------------------------------------------------- the calls


class Answers:
    """The stub of a server that gives these answers, or raises them."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []
        self.timeouts: list[float] = []

    async def call(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as gRPC's calls have it
        self.asked.append(request)
        self.timeouts.append(timeout)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    Join = Report = Leave = call

    def Watch(self, request: pb.WatchRequest) -> Answers:  # noqa: N802
        self.asked.append(request)
        return self

    async def read(self) -> Any:
        answer = self._answers.pop(0) if self._answers else grpc.aio.EOF
        if isinstance(answer, Exception):
            raise answer
        return answer


def broke() -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, "Connection refused")


def on(answers: Answers, work: Callable[[Line], Any]) -> Any:
    async def scenario() -> Any:
        return await work(Line(cast(Stub, answers), b"session", TRUST))

    return asyncio.run(scenario())


def joined(answer: Any, *, whole: bool = False) -> tuple[Answers, Any]:
    async def scenario() -> Any:
        channel = Channel(TRUST)
        channel.stub = cast(Stub, answers)
        described = device.describe(cast(Any, "cpu"), ClientConfig(watts=5.0))
        try:
            return await channel.join(Introduction("c2", b"i" * 16, None, described, b"life"), whole=whole)
        finally:
            await channel.close()

    answers = Answers(answer)
    return answers, asyncio.run(scenario())


@pytest.mark.parametrize("whole", [False, True])
def test_a_join_says_who_asks_and_in_which_revisions_it_can_speak(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "run_from_wire", lambda run: run.run_id)
    admitted = pb.Admission(session=b"s", run=pb.Run(run_id="run1"))
    answers, (line, run) = joined(pb.JoinResponse(admission=admitted), whole=whole)
    (asked,) = answers.asked
    assert (asked.client_id, asked.instance_id, asked.life, asked.digests) == (
        "c2",
        b"i" * 16,
        b"life",
        not whole,
    )
    assert (asked.protocol_least, asked.protocol) == spoken()
    assert not asked.HasField("own_data")
    assert asked.device.watts == 5.0
    assert (line.session, run, answers.timeouts) == (b"s", "run1", [PATIENCE_S])


@pytest.mark.parametrize(
    ("answer", "error", "foreign"),
    [
        (pb.JoinResponse(refusal=NO), ServerRefused, False),
        (pb.JoinResponse(), Unreached, True),
        (pb.JoinResponse(admission=pb.Admission(protocol=spoken()[1] + 1)), Unreached, True),
        (broke(), Unreached, False),
        (None, Unreached, False),  # as gRPC may give, of a server that goes down
    ],
    ids=["refused", "nonsense", "another revision", "broken", "nothing"],
)
def test_a_join_that_fails_says_how(answer: Any, error: type[Exception], foreign: bool) -> None:
    with pytest.raises(error) as caught:
        joined(answer)
    assert getattr(caught.value, "foreign", False) is foreign


def test_views_come_until_the_watch_ends_or_makes_no_sense() -> None:
    async def seen(line: Line) -> list[int]:
        return [view.round async for view in line.views()]

    shown = [pb.WatchResponse(view=pb.View(round=number)) for number in (1, 2)]
    answers = Answers(*shown)
    assert on(answers, seen) == [1, 2]
    assert answers.asked[0].session == b"session"
    for bad, error in (
        (pb.WatchResponse(), Interrupted),
        (pb.WatchResponse(refusal=NO), ServerRefused),
        (broke(), Unreached),
    ):
        with pytest.raises(error):
            on(Answers(*shown, bad), seen)


def test_a_report_is_of_its_session_and_waits_as_long_as_it_may_take() -> None:
    answers = Answers(pb.ReportResponse(), pb.ReportResponse())
    on(answers, lambda line: line.ready(5, (2, 3), b"l" * 16, "flip"))
    on(answers, lambda line: line.report(pb.ReportRequest()))
    assert [request.session for request in answers.asked] == [b"session"] * 2
    assert answers.timeouts == [PATIENCE_S, REPORT_TIMEOUT_S]
    ready = answers.asked[0].ready
    assert (ready.samples, [*ready.class_counts], ready.layout_digest) == (5, [2, 3], b"l" * 16)
    assert ready.augment == "flip"
    failures = ((pb.ReportResponse(refusal=NO), ServerRefused), (broke(), Unreached), (None, Unreached))
    for bad, error in failures:
        with pytest.raises(error):
            on(Answers(bad), lambda line: line.report(pb.ReportRequest()))


def test_a_farewell_is_short_and_a_courtesy() -> None:
    answers = Answers(pb.LeaveResponse(), broke())
    for _ in range(2):
        on(answers, lambda line: line.leave("x" * 1000))
    assert [(request.session, request.reason) for request in answers.asked] == [(b"session", "x" * 200)] * 2
    assert answers.timeouts == [LEAVE_TIMEOUT_S] * 2


def test_a_line_is_lost_once_and_for_the_first_reason() -> None:
    async def lost(line: Line) -> str:
        assert line.up
        line.lose(Interrupted("first"))
        line.lose(Interrupted("second"))
        assert not line.up
        return str(line.lost.exception())

    assert on(Answers(), lost) == "first"


def test_a_device_says_what_its_operator_stated() -> None:
    told = device.describe(cast(Any, "cpu"), ClientConfig(threads=2, parallel=3, device="auto"))
    assert (told.watts, told.threads, told.parallel, told.asked, told.compute) == (0.0, 2, 3, "auto", "cpu")
    assert told.cores >= 1
    assert told.memory_bytes > 1 << 20
