"""The watch over the budgets: a limit is said once, while a round is at hand, and before a byte too many."""

from __future__ import annotations

import asyncio
import re
import time

from edgeflock.server.core.events import LimitReached
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.time_line import OPEN, RoundTimes
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.bookkeeping import Process, Spending, Watch
from support.tiny_run import layouts, learner


def watch_over(
    budget: Budget, traffic: TrafficBook | None = None, time_line: RoundTimes | None = None
) -> Watch:
    time_line = time_line or RoundTimes()
    return Watch(Spending(budget, traffic or TrafficBook(), learner(layouts()), Process(), time_line))


async def end_of(watch: Watch) -> LimitReached | None:
    return await asyncio.wait_for(watch.reached(), 20)


def test_the_bytes_of_a_message_are_looked_at_before_it_passes() -> None:
    traffic = TrafficBook()
    watch = watch_over(Budget({"bytes": 100.0}), traffic)
    traffic.of("c0").received(0, 90)
    assert (watch.beyond(10), watch.bytes_left(), watch.over) == ("", 10.0, False)
    sentence = "the budget of bytes is used up: 90 B of 100 B, and a message has 11 B"
    assert (watch.beyond(11), watch.over) == (sentence, True)
    assert watch.beyond(11) == ""  # it is said
    assert asyncio.run(end_of(watch)) is None


def test_the_time_of_a_round_is_over_when_it_is() -> None:
    async def scene() -> tuple[LimitReached | None, float]:
        time_line = RoundTimes()
        watch = watch_over(Budget({"time": 0.05}), time_line=time_line)
        looking = asyncio.ensure_future(end_of(watch))
        await asyncio.sleep(0)  # no round: it waits
        began = time.monotonic()
        time_line.enter(OPEN, 1)
        watch.look()
        return await looking, time.monotonic() - began

    found, took_s = asyncio.run(scene())
    assert found is not None
    spent = re.fullmatch(r"the budget of time is used up: ([0-9.]+) s of 0\.05 s", found.reason)
    assert spent is not None
    assert 0.05 <= float(spent[1]) <= took_s + 0.001
    assert 0.05 <= took_s < 2.0  # it did not sleep until its next look at the CPU time


def test_who_closes_it_ends_it() -> None:
    async def scene() -> LimitReached | None:
        watch = watch_over(Budget({"cpu": 1e9}))
        looking = asyncio.ensure_future(end_of(watch))
        await asyncio.sleep(0)
        watch.close()
        return await looking

    assert asyncio.run(scene()) is None
