"""The open round: what is made for a member is made once, and a failure is not kept."""

from __future__ import annotations

import asyncio

import pytest

from edgeflock.server.engine.open_round import OnDemand, saved


def test_who_asks_at_the_same_time_gets_the_same_and_who_goes_meanwhile_spoils_nothing() -> None:
    async def scene() -> None:
        made, asked, ready = OnDemand[object](), list[int](), asyncio.Event()

        async def make() -> object:
            asked.append(1)
            await ready.wait()
            return object()

        waiting = [asyncio.ensure_future(made.get(3, make)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        ready.set()
        second, third = await asyncio.gather(*waiting[1:])
        assert second is third is await made.get(3, make)
        assert len(asked) == 1
        made.forget(3)
        assert await made.get(3, make) is not second

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_what_failed_is_made_again() -> None:
    async def scene() -> None:
        made = OnDemand[str]()

        async def fail() -> str:
            raise OSError(28, "No space left on device")

        async def work() -> str:
            return "here"

        with pytest.raises(OSError, match="No space"):
            await made.get(0, fail)
        assert await made.get(0, work) == "here"

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_a_round_is_shorter_by_what_tests_of_clients_models_have_held_it_up() -> None:
    """Two share a process: the second one's update has waited for both tests; a third tests nothing."""
    came = {0: 110.0, 1: 120.0, 2: 104.0}
    assert saved(came, {0: 5.0, 1: 10.0}, 100.0) == 10.0
    assert saved(came | {2: 119.0}, {0: 5.0, 1: 10.0}, 100.0) == 1.0  # without tests that one is the last
    assert saved(came, {1: 30.0}, 100.0) == 10.0
    assert saved({1: 120.0}, {1: 30.0}, 100.0) == 20.0  # no more than it has lasted
    assert saved(came, {}, 100.0) == saved({}, {}, 100.0) == 0.0
