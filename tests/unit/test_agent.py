"""The agent of one client over connections that are played: what it waits out, what ends it, what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from edgeflock.client import agent
from edgeflock.client.agent import STEADY_S, Agent, AgentRules, Distrusted, Foreign, GaveUp, RunFailed
from edgeflock.client.deciding.backoff import MOST_S
from edgeflock.client.deciding.session import Finish
from edgeflock.client.keeping.statedir import Unwritable
from edgeflock.client.link.line import Line
from edgeflock.client.link.stub import Stub
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted, Introduction, ServerRefused, Unreached, View
from edgeflock.common.errors import BadData, CorruptState, LayoutMismatch, NothingYet, Undescribed
from edgeflock.common.reason import Reason
from edgeflock.common.wire.address import Address, parse_address
from support.quick_loop import quickly

ADDRESS = parse_address("127.0.0.1:1", "--server")
Said = list[tuple[str, Any]]


class Played(Line):
    """A line on which views come as they are played."""

    def __init__(self, shown: list[View | Exception | None], said: Said) -> None:
        super().__init__(cast(Stub, None), b"session", Trust(ADDRESS))
        self._shown, self._said = shown, said

    async def views(self) -> AsyncIterator[View]:
        for view in self._shown:
            if view is None:  # the server has closed it
                return
            if isinstance(view, Exception):
                raise view
            yield view
        if not (self._shown and self._shown[-1] == OVER):
            await asyncio.Event().wait()

    async def leave(self, reason: str) -> None:
        self._said.append(("leave", reason))


OVER = View(ending="enough")


@dataclass
class Connection:
    """What happens on one: it is refused or broken, or views come and the client acts until it ends."""

    shown: list[View | Exception | None] = field(default_factory=lambda: [View()])
    lasts_s: float = 0.0
    end: Finish | BaseException = field(default_factory=lambda: Interrupted("cut"))
    join: Exception | None = None
    run: str = "run1"
    sits: bool = True


@dataclass
class Act:
    """A client's part in a run, played."""

    run_id: str
    theatre: Theatre
    hears: bool = False
    sat: bool = False
    work: tuple[int, int, int] | None = None

    def enter(self, epoch: int) -> None:
        self.theatre.said.append(("enter", epoch))

    def see(self, view: View, line: Line) -> None:
        self.hears = True
        self.theatre.said.append(("see", view))

    async def act(self, line: Line) -> Finish:
        now = self.theatre.now
        assert now is not None
        await asyncio.sleep(0.001)  # the first views are there
        self.sat = self.sat or now.sits
        await asyncio.wait([line.lost], timeout=now.lasts_s)
        if line.lost.done():
            line.lost.result()
        if isinstance(now.end, BaseException):
            raise now.end
        return now.end

    def detach(self) -> None:
        self.hears = False
        self.theatre.said.append(("detach", None))

    async def close(self) -> None:
        self.theatre.said.append(("stop", self.run_id))

    async def leave(self) -> None:
        self.theatre.said.append(("told to go", self.run_id))


@dataclass
class Theatre:
    """The trainer, the link and all that happens on it; the last connection happens again and again."""

    connections: list[Connection]
    said: Said = field(default_factory=list)
    joins: list[tuple[float, bool]] = field(default_factory=list)
    now: Connection | None = None
    addresses: tuple[Address, ...] = (ADDRESS,)
    description: Any = None
    own: Any = None
    lacking: int = 0  # looks at own data that find nothing yet
    refreshes_rounds: bool = False
    trouble: Exception | None = None

    @asynccontextmanager
    async def channel(self, at: Address) -> AsyncIterator[Theatre]:
        yield self

    async def join(self, who: Introduction, *, whole: bool = False) -> tuple[Line, Any]:
        self.joins.append((asyncio.get_running_loop().time(), whole))
        self.who = who
        self.now = self.connections.pop(0) if len(self.connections) > 1 else self.connections[0]
        if self.now.join is not None:
            raise self.now.join
        return Played(self.now.shown, self.said), SimpleNamespace(run_id=self.now.run, epoch=3, code=())

    def meter(self, *, alone: bool) -> Any:
        return SimpleNamespace(finish=lambda round: self.said.append(("finish", round)))

    async def own_data(self, client_id: str, *, again: bool = False) -> Any:
        if self.lacking:
            self.lacking -= 1
            raise NothingYet("log.csv: x has no samples")
        if self.own is not None:
            raise self.own
        return None

    async def setup(self, run: Any) -> Any:
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        return SimpleNamespace()

    async def check_data(self, setup: Any, client_id: str) -> None:
        pass

    async def run(self, work: Any, client_id: str, folder: Path, run_id: str) -> Any:
        return SimpleNamespace(run_id=run_id)

    def words(self, *kinds: str) -> list[tuple[str, Any]]:
        return [word for word in self.said if word[0] in kinds]


@pytest.fixture(autouse=True)
def _parts_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time()))
    monkeypatch.setattr(agent, "Desk", lambda client_id, trainer, setup, meter: trainer)
    monkeypatch.setattr(
        agent, "Participation", lambda client_id, desk, kept, backoff, shelf: Act(kept.run_id, desk)
    )


def of(*connections: Connection, **more: Any) -> Theatre:
    return Theatre(list(connections), **more)


def living(on: Theatre, *, stay: bool = False, give_up_after_s: float = 1000.0) -> Agent:
    rules = AgentRules(b"i" * 16, stay, give_up_after_s, alone=True, life=b"life")
    return Agent("c2", Path("folder"), cast(Any, on), cast(Any, on), rules)


def lived(on: Theatre, *, for_s: float = 0.0, stay: bool = False, give_up_after_s: float = 1000.0) -> Any:
    """Return how a life ends, and its lines; one that is `for_s` long is told to go then."""

    async def scenario() -> Any:
        life = asyncio.create_task(living(on, stay=stay, give_up_after_s=give_up_after_s).run())
        if for_s:
            await asyncio.sleep(for_s)
            life.cancel()
        (end,) = await asyncio.gather(life, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return end

    with capture_logs() as lines:
        return quickly(scenario()), [line for line in lines if line["event"] != "connected"]


def reasons(lines: list[dict[str, Any]]) -> list[str]:
    return [line["reason"] for line in lines if line["event"] == "server_not_reached"]


def pauses(on: Theatre) -> list[float]:
    times = [time for time, _ in on.joins]
    return [later - earlier for earlier, later in pairwise(times)]


# ------------------------------------------------------------------------------- the end


def test_a_run_that_is_over_ends_the_client_with_its_reason_and_a_farewell() -> None:
    on = of(Connection(shown=[View(), OVER], end=Finish("enough")))
    end, lines = lived(on)
    assert end == "enough"
    assert on.words("leave", "stop", "enter") == [("enter", 3), ("leave", "enough"), ("stop", "run1")]
    (over,) = lines
    assert (over["event"], over["run_id"], over["reason"], over["failed"]) == (
        "run_over",
        "run1",
        "enough",
        False,
    )
    assert (on.who.client_id, on.who.instance, on.who.life) == ("c2", b"i" * 16, b"life")


def test_a_run_that_has_failed_is_an_error_unless_the_client_stays() -> None:
    failed = Connection(end=Finish("it diverged", failed=True))
    end, lines = lived(of(failed))
    assert (type(end), str(end)) == (RunFailed, "the run has failed: it diverged")
    assert [line["failed"] for line in lines] == [True]
    end, lines = lived(of(failed), stay=True, for_s=100)
    assert isinstance(end, asyncio.CancelledError)
    assert [line["event"] for line in lines] == ["run_over"]  # said once, however often it is asked for


def test_a_client_that_is_told_to_go_tells_what_it_owes_and_says_farewell() -> None:
    """A cancellation is swallowed nowhere."""
    on = of(Connection(lasts_s=1000))
    end, _ = lived(on, for_s=5)
    assert isinstance(end, asyncio.CancelledError)
    kinds = [("told to go", "run1"), ("leave", "shut down"), ("detach", None), ("stop", "run1")]
    assert on.said[-4:] == kinds


def test_a_client_that_stays_takes_part_in_the_next_run_and_what_was_between_is_neither_s() -> None:
    first, second = Connection(end=Finish("enough")), Connection(lasts_s=50, run="run2", end=Finish("done"))
    on = of(first, second)
    _, lines = lived(on, stay=True, for_s=40)
    assert on.words("finish", "stop") == [("stop", "run1"), ("finish", 0), ("stop", "run2")]
    assert [line["run_id"] for line in lines] == ["run1"]
    assert 0 < pauses(on)[0] <= 0.2 + 0.01


def test_a_run_that_was_over_before_the_client_came_is_no_mistake() -> None:
    refused = ServerRefused(Reason.FINISHED, "all rounds are done")
    end, lines = lived(of(Connection(join=refused)))
    assert (end, [line["run_id"] for line in lines]) == ("all rounds are done", ["unknown"])


# ------------------------------------------------------------------------------- what is waited out


def test_delays_grow_until_a_connection_has_lasted() -> None:
    on = of(*[Connection()] * 12, Connection(lasts_s=STEADY_S + MOST_S + 1), Connection())
    lived(on, for_s=150)
    waits = pauses(on)
    assert max(waits[5:12]) > 1.0
    assert waits[13] <= 0.2 + 0.01  # the delay after the steady one began anew
    short = of(*[Connection()] * 12, Connection(lasts_s=STEADY_S), Connection())
    lived(short, for_s=150)
    assert max(pauses(short)[13:18]) > 1.0


def test_nothing_that_was_heard_for_too_long_is_given_up_with_the_last_reason() -> None:
    on = of(Connection(lasts_s=30), Connection(join=Unreached("connection refused", hint=" (hm)")))
    end, lines = lived(on, give_up_after_s=20)
    assert isinstance(end, GaveUp)
    assert str(end) == f"no server was reached at {ADDRESS.target} for 20 s: connection refused"
    assert 50 <= on.joins[-1][0] <= 50.1  # counted from when it was there last, and no moment longer
    assert set(reasons(lines)) == {"cut", "connection refused"}
    first = of(Connection(join=Unreached("connection refused", hint=" (hm)")))
    assert str(lived(first, give_up_after_s=20)[0]).endswith("for 20 s: connection refused (hm)")


@pytest.mark.parametrize(
    "never",
    [
        Connection(join=ServerRefused(Reason.DUPLICATE_ID, "why")),
        Connection(shown=[Interrupted("why")], lasts_s=1000),
    ],
    ids=["without its seat", "a watch that makes no sense"],
)
def test_a_server_from_which_no_view_comes_any_more_is_given_up(never: Connection) -> None:
    on = of(Connection(lasts_s=30), never)
    end, _ = lived(on, give_up_after_s=20)
    assert isinstance(end, GaveUp)
    assert str(end).endswith("for 20 s: why")
    assert 50 <= on.joins[-1][0] <= 50.1


def test_a_client_that_stays_never_gives_up() -> None:
    on = of(Connection(join=Unreached("connection refused")))
    end, _ = lived(on, stay=True, give_up_after_s=20, for_s=200)
    assert isinstance(end, asyncio.CancelledError)
    assert on.joins[-1][0] > 180


def test_a_server_that_goes_down_names_the_time_for_the_return_once() -> None:
    going = Connection(shown=[View(return_within_ms=30_000)], lasts_s=1)
    waits = []
    for _ in range(9):
        on = of(*[Connection()] * 9, going, Connection())
        lived(on, for_s=100)
        waits.append(pauses(on)[9:12])
    assert max(first for first, *_ in waits) > 10.0
    assert max(second for _, second, *_ in waits) <= 0.4 + 0.01  # the next one is of a back-off begun anew


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ServerRefused(Reason.ROSTER_FULL, "full"), ServerRefused),
        (Unreached("?", foreign=True), Foreign),
        (Unreached("no", distrusted=True), Distrusted),
        (LayoutMismatch("another model"), LayoutMismatch),
    ],
)
def test_what_waiting_does_not_change_ends_a_client_at_first_contact_and_is_waited_out_later(
    error: Exception, wanted: type[Exception]
) -> None:
    assert isinstance(lived(of(Connection(join=error)))[0], wanted)
    for stay, connections in (
        (True, [Connection(join=error)] * 4),
        (False, [Connection(), *[Connection(join=error)] * 4]),
    ):
        on = of(*connections, Connection(end=Finish("enough")))
        end, lines = lived(on, stay=stay, for_s=100 if stay else 0)
        assert stay or end == "enough"
        met = [line for line in lines if line.get("met")]
        assert len(met) == 1  # said once, however often it is asked


def test_another_refusal_is_said_again_and_the_same_again_after_a_view() -> None:
    one, other = ServerRefused(Reason.ROSTER_FULL, "full"), ServerRefused(Reason.DUPLICATE_ID, "taken")
    walk = [None, one, one, other, None, other, other]
    on = of(*(Connection(join=error) for error in walk), Connection(end=Finish("enough")))
    _, lines = lived(on)
    assert reasons(lines) == ["cut", "full", "taken", "cut", "taken"]


@pytest.mark.parametrize("reason", [Reason.BUSY, Reason.UNKNOWN_SESSION, Reason.SUPERSEDED])
def test_what_passes_is_waited_out_at_first_contact_as_long_as_the_server_says(reason: Reason) -> None:
    refused = ServerRefused(reason, "later", temporary=reason is Reason.BUSY, retry_after_ms=7000)
    on = of(Connection(join=refused), Connection(end=Finish("enough")))
    end, lines = lived(on)
    assert (end, [line["met"] for line in lines if "met" in line]) == ("enough", [True])
    assert 7.0 <= pauses(on)[0] <= 7.2 + 0.01


def test_a_client_that_never_took_its_seat_ends_with_what_it_lacks() -> None:
    """Its server has shown it a view; what the run needs and it has not is its own mistake."""
    lacking = Connection(end=BadData("no such data here"), sits=False)
    on = of(lacking)
    end, _ = lived(on)
    assert isinstance(end, BadData)
    assert on.words("leave") == [("leave", "no such data here")]
    proved = of(Connection(), Connection(end=BadData("no such data here"), run="run2", sits=False), lacking)
    proved.connections.append(Connection(end=Finish("enough")))
    assert lived(proved)[0] == "enough"  # it was ready in another run: this is a stranger's
    passing = ServerRefused(Reason.BUSY, "later", temporary=True)
    gone = ServerRefused(Reason.ROSTER_FULL, "full")
    kept = of(Connection(end=passing, sits=False), Connection(join=gone), Connection(end=Finish("enough")))
    assert lived(kept)[0] == "enough"  # what passes takes no seat away


@pytest.mark.parametrize(
    ("error", "wanted"), [(CorruptState("torn"), CorruptState), (OSError(28, "full"), Unwritable)]
)
def test_what_is_wrong_with_its_own_files_ends_a_client_whatever_it_was_before(
    error: Exception, wanted: type[Exception]
) -> None:
    assert isinstance(lived(of(Connection(), Connection(end=error)))[0], wanted)


def test_what_is_wrong_with_its_own_data_is_said_before_any_server_is_asked() -> None:
    on = of(Connection(), own=BadData("no labels"))
    assert isinstance(lived(on)[0], BadData)
    assert on.joins == []


def test_the_first_lines_of_a_log_that_grows_are_waited_for_and_of_no_other() -> None:
    on = of(Connection(end=Finish("enough")), lacking=5, refreshes_rounds=True)
    ending, lines = lived(on)
    assert ending == "enough"
    assert on.joins[0][0] >= 1 + 2 + 4 + 8 + 16
    assert [line["reason"] for line in lines if line["event"] == "data_awaited"] == [
        "log.csv: x has no samples"
    ]
    assert isinstance(lived(of(Connection(), lacking=1))[0], NothingYet)


def test_the_whole_of_the_layouts_is_asked_for_only_to_say_what_differs() -> None:
    on = of(Connection(end=Finish("enough")), trouble=Undescribed("something differs"))
    assert lived(on)[0] == "enough"
    assert [whole for _, whole in on.joins] == [False, True]


# ------------------------------------------------------------------------------- the watch


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ([View(), Unreached("reset")], "reset"),
        ([View(), ServerRefused(Reason.UNKNOWN_SESSION, "join again")], "join again"),
        ([View(), Interrupted("the server is gone")], "the server is gone"),
        ([OVER, Interrupted("gone after the end")], "gone after the end"),
        ([None], "the server has closed the watch"),
        ([View(), None], "the server has closed the watch"),
    ],
)
def test_whatever_ends_the_watch_breaks_the_line(shown: list[View | Exception | None], reason: str) -> None:
    on = of(Connection(shown=shown, lasts_s=1000), Connection(end=Finish("enough")))
    end, lines = lived(on)
    assert (end, reasons(lines)) == ("enough", [reason])
    assert on.joins[1][0] < 1


def test_a_bug_in_what_sees_a_view_ends_the_client_and_leaves_nobody_waiting() -> None:
    on = of(Connection(shown=[View(), KeyError("bug")], lasts_s=1000))
    assert isinstance(lived(on)[0], KeyError)


@pytest.mark.parametrize("trouble", [MemoryError("can't allocate memory"), KeyError("bug")])
def test_who_stays_survives_a_run_that_does_not_fit_and_takes_part_in_the_next(trouble: Exception) -> None:
    """One whose model is too large for the device, or that meets a mistake; without --stay it is the end."""
    on = of(Connection(), Connection(run="run2", lasts_s=50, end=Finish("done")), trouble=trouble)
    end, lines = lived(on, stay=True, for_s=100)
    assert isinstance(end, asyncio.CancelledError)
    assert [line["event"] for line in lines] == ["run_given_up", "run_over"]
    words = "not enough memory" if isinstance(trouble, MemoryError) else "this is a bug, KeyError: 'bug'"
    assert words in lines[0]["reason"]
    assert lived(of(Connection(), trouble=trouble))[0] is trouble


def test_a_run_that_breaks_in_the_midst_is_begun_anew_by_who_stays() -> None:
    on = of(Connection(end=KeyError("bug")), Connection(lasts_s=50, end=Finish("done")))
    _, lines = lived(on, stay=True, for_s=100)
    assert [line["event"] for line in lines] == ["run_given_up", "run_over"]
    assert on.words("enter", "stop")[:3] == [("enter", 3), ("stop", "run1"), ("enter", 3)]


def test_a_server_that_has_said_the_end_and_closed_the_watch_hears_the_client_out() -> None:
    on = of(Connection(shown=[View(), OVER], lasts_s=50, end=Finish("enough")))
    assert lived(on)[0] == "enough"
    assert on.words("leave") == [("leave", "enough")]


def test_work_is_that_of_its_part() -> None:
    async def scenario() -> None:
        on = of(Connection(lasts_s=1000))
        made = living(on)
        assert made.work is None
        life = asyncio.create_task(made.run())
        await asyncio.sleep(1)
        part = cast(Act, made._part)
        part.work = (1, 2, 3)
        assert made.work == (1, 2, 3)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)

    quickly(scenario())
