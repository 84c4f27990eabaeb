"""Flow: credit is bounded and nobody ever stands still; turns come in order and everybody gives them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.common.wire.transport import CHUNK, SMALL_CHUNK
from edgeflock.server.service.flow import SLOWEST_BYTES_PER_S, CreditPool, Patience, Stream, Turns

SIZES = st.integers(1, 40 * SMALL_CHUNK)


def test_a_window_is_four_chunks() -> None:
    """So much of each upload may be in the air: with less a long way is not filled."""
    assert CreditPool(1 << 30).admit(0, 1 << 30).outstanding == 4 * CHUNK


def test_a_lone_stream_gets_a_whole_window() -> None:
    pool = CreditPool(32 * CHUNK)
    stream = pool.admit(0, 100 * CHUNK)
    assert (stream.held, stream.limit) == (0, 4 * CHUNK)


def test_credit_ends_with_the_payload() -> None:
    pool = CreditPool(32 * CHUNK)
    stream = pool.admit(300, 1000)
    assert (stream.limit, pool.outstanding) == (1000, 700)


def test_a_complete_upload_holds_no_credit() -> None:
    pool = CreditPool(32 * CHUNK)
    assert pool.admit(1000, 1000).limit == 1000
    assert pool.outstanding == 0


def test_when_the_budget_is_used_up_a_new_stream_still_gets_one_small_chunk() -> None:
    pool = CreditPool(4 * CHUNK)
    pool.admit(0, 100 * CHUNK)
    assert pool.admit(0, 100 * CHUNK).limit == SMALL_CHUNK


def test_credit_comes_back_when_half_of_the_window_is_used() -> None:
    pool = CreditPool(32 * CHUNK)
    stream = pool.admit(0, 100 * CHUNK)
    assert not pool.spooled(stream, CHUNK)
    assert pool.spooled(stream, CHUNK)
    assert stream.limit == 6 * CHUNK


def test_a_stream_that_ends_gives_back_what_it_did_not_use() -> None:
    pool = CreditPool(4 * CHUNK)
    first, second = pool.admit(0, 100 * CHUNK), pool.admit(0, 100 * CHUNK)
    pool.spooled(first, SMALL_CHUNK)
    pool.close(first)
    assert pool.outstanding == second.outstanding == SMALL_CHUNK
    pool.close(first)
    assert pool.outstanding == SMALL_CHUNK
    assert pool.spooled(second, SMALL_CHUNK)
    assert second.outstanding == 4 * CHUNK


@given(
    budget=st.integers(0, 20 * SMALL_CHUNK),
    window=st.integers(SMALL_CHUNK, 16 * SMALL_CHUNK),
    steps=st.lists(st.tuples(st.sampled_from("aswc"), st.integers(0, 5), SIZES), max_size=60),
)
@settings(deadline=None)
def test_credit_is_bounded_and_every_stream_moves(
    budget: int, window: int, steps: list[tuple[str, int, int]]
) -> None:
    """Outstanding <= budget + one small chunk per stream, and nobody waits for another."""
    pool = CreditPool(budget, window_bytes=window)
    streams: list[Stream] = []
    for step, which, count in steps:
        if step == "a" and len(streams) < 6:
            streams.append(pool.admit(count // 3, count))
        elif streams and step in "sw":
            stream = streams[which % len(streams)]
            pool.spooled(stream, min(count, stream.outstanding))
        elif streams and step == "c":
            pool.close(streams.pop(which % len(streams)))
        assert pool.outstanding == sum(stream.outstanding for stream in streams)
        assert pool.outstanding <= budget + SMALL_CHUNK * len(streams)
        for stream in streams:
            assert stream.held <= stream.limit <= stream.size
            assert stream.outstanding >= min(SMALL_CHUNK, stream.size - stream.held)
            assert stream.outstanding <= max(window, SMALL_CHUNK)
    for stream in streams:
        pool.close(stream)
    assert pool.outstanding == 0


def test_after_an_interruption_little_is_in_the_air() -> None:
    pool = CreditPool(32 * CHUNK)
    stream = pool.admit(CHUNK, 100 * CHUNK)
    assert (stream.held, stream.limit) == (CHUNK, CHUNK + 2 * SMALL_CHUNK)
    assert pool.spooled(stream, SMALL_CHUNK)
    assert stream.outstanding == 2 * SMALL_CHUNK


# ------------------------------------------------------------------------------------- turns

LARGE = SMALL_CHUNK + 1
FOREVER_S = 3600.0


class Stage:
    """Two turns, and transfers that are over when they are told so."""

    def __init__(self, *, look_s: float = FOREVER_S, quick: int = 1) -> None:
        self.turns = Turns(2, look_s=look_s, quick=quick)
        self.began: list[tuple[str, bool]] = []
        self._begun: dict[str, asyncio.Event] = {}
        self._over: dict[str, asyncio.Event] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str, size: int = LARGE) -> None:
        """Begin transfers; return when each has its turn or waits for it."""
        for name in names:
            self._begun[name], self._over[name] = asyncio.Event(), asyncio.Event()
            self._lives[name] = asyncio.create_task(self._transfer(name, size))
            await _settled()

    async def end(self, name: str) -> None:
        self._over[name].set()
        await self._lives[name]
        await _settled()

    async def cut(self, name: str) -> None:
        self._lives[name].cancel()
        await asyncio.gather(self._lives[name], return_exceptions=True)
        await _settled()

    async def _transfer(self, name: str, size: int) -> None:
        async with self.turns.one(size) as mine:
            self.began.append((name, mine))
            self._begun[name].set()
            await self._over[name].wait()

    async def until(self, name: str) -> bool:
        """Wait until a transfer goes on; return whether it has a turn."""
        await self._begun[name].wait()
        return dict(self.began)[name]


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scene()

    asyncio.run(bounded())


def test_turns_come_in_order() -> None:
    async def scene() -> None:
        stage = Stage()
        await stage.begin("a", "b", "c", "d")
        assert stage.began == [("a", True), ("b", True)]
        await stage.end("b")
        await stage.end("a")
        assert stage.began[2:] == [("c", True), ("d", True)]

    played(scene)


def test_a_small_transfer_needs_none() -> None:
    async def scene() -> None:
        stage = Stage()
        await stage.begin("a", "b")
        await stage.begin("small", size=SMALL_CHUNK)
        assert stage.began[-1] == ("small", True)
        await stage.end("small")
        await stage.begin("c")
        assert "c" not in dict(stage.began)  # the small one has given nothing back

    played(scene)


@pytest.mark.parametrize("victim", ["a", "c"], ids=["with a turn", "waiting"])
def test_who_is_cut_off_leaves_the_turn_to_the_next(victim: str) -> None:
    async def scene() -> None:
        stage = Stage()
        await stage.begin("a", "b", "c", "d")
        await stage.cut(victim)
        await stage.end("b")
        assert stage.began[-1] == ("d", True)
        await stage.end("d")
        await stage.begin("e")
        assert stage.began[-1] == ("e", True)  # no turn was lost

    played(scene)


def test_who_is_cut_off_at_the_very_moment_of_its_turn_gives_it_on() -> None:
    async def scene() -> None:
        class Cutting(Turns):
            def _give_back(self) -> None:
                super()._give_back()
                stage._lives["c"].cancel()

        stage = Stage()
        stage.turns = Cutting(2, look_s=FOREVER_S)
        await stage.begin("a", "b", "c", "d")
        await stage.end("a")
        assert await stage.until("d")
        assert "c" not in dict(stage.began)

    played(scene)


def test_nobody_waits_where_the_others_are_slow() -> None:
    async def scene() -> None:
        stage = Stage(look_s=0.01)
        await stage.begin("a", "b", "c")
        assert not await stage.until("c")
        await stage.begin("d")
        await stage.end("c")  # it had none to give back
        assert not await stage.until("d")

    played(scene)


def test_who_waits_goes_on_waiting_while_the_others_are_quick() -> None:
    async def scene() -> None:
        looks, looked = 0, asyncio.Event()

        class Watched(Turns):
            def _all_are_quick(self) -> bool:
                nonlocal looks
                looks += 1
                if looks > 3:
                    looked.set()
                self.moved(10)
                return super()._all_are_quick()

        stage = Stage()
        stage.turns = Watched(2, look_s=0.01, quick=10)
        await stage.begin("a", "b", "c")
        await looked.wait()
        assert "c" not in dict(stage.began)
        await stage.end("a")
        assert await stage.until("c")

    played(scene)


def test_thousands_who_wait_are_looked_after_by_one_timer() -> None:
    async def scene() -> None:
        stage = Stage(look_s=0.01)
        timers = vars(asyncio.get_running_loop())["_scheduled"]
        before = len(timers)
        await stage.begin("a", "b")
        await asyncio.gather(*(stage.begin(f"x{number}") for number in range(200)))
        assert len(timers) <= before + 1
        assert not await stage.until("x199")

    played(scene)


# ------------------------------------------------------------------------------- patience


def test_one_waits_for_a_chunk_twice_as_long_as_the_slowest_link_takes_and_what_comes_earns_more() -> None:
    patience = Patience(8 * SLOWEST_BYTES_PER_S)
    assert patience.most_s == patience.left_s == 16.0
    patience.waited(10.0)
    patience.received(2 * SLOWEST_BYTES_PER_S)
    assert patience.left_s == 8.0
    patience.received(1 << 30)
    assert patience.left_s == 16.0, "and never more than that"
    patience.waited(17.0)
    assert patience.left_s < 0
