"""The open round: what is made for a member is made once, and a failure is not kept."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.common.payload.description import Description
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.costs.budget import Budget
from edgeflock.server.engine.open_round import OnDemand, OpenRound, saved
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.spool import Spool
from support.tiny_run import layouts, learner, update


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


def opened_in(folder: Path, *seats: int) -> OpenRound:
    """Return a round that is open for these."""
    mind = learner(layouts())
    mind.save(checkpoints := Checkpoints(folder, layouts()), 0)
    work = mind.open(mind.round(1, seats, {}), checkpoints.model_path(0), folder)
    return OpenRound(work, Spool(folder / "spool").prepare(1, seats, work.upload_limit), 100.0)


def test_what_the_method_may_steer_by_is_the_slowest_and_the_sum_of_what_can_be(tmp_path: Path) -> None:
    opened = opened_in(tmp_path, 0, 1, 2)
    opened.state(0, {"train_s": 2.0, "cpu_s": 1.0, "energy_j": 8.0})
    opened.state(1, {"train_s": 5.0, "cpu_s": 2.0})
    opened.state(2, {"train_s": math.inf, "cpu_s": -4.0, "energy_j": math.nan})
    measured = {"round_s": 9.0, "train_s": 5.0, "train_cpu_s": 3.0, "train_energy_j": 8.0}
    assert opened.measured(9.0) == measured
    assert opened.told(measured) == measured
    assert opened.told({"round_s": 11.0}) == measured, "a commit that is tried again"
    assert opened_in(tmp_path / "empty").measured(1.0)["train_s"] == 0.0


def test_what_everybody_has_stated_is_known_of_a_round_that_is_discarded(tmp_path: Path) -> None:
    opened = opened_in(tmp_path, 0, 1)
    opened.state(1, {"cpu_s": 2.0, "train_s": 9.0})
    opened.correct(1, {"cpu_s": 2.5, "energy_j": 7.0})
    opened.correct(1, {"cpu_s": 1.0})  # nothing that was stated is lowered
    lost = {"cpu_s": None, "energy_j": None}
    assert opened.lost() == {0: lost, 1: {"cpu_s": 2.5, "energy_j": 7.0}}


def test_allowances_are_for_those_who_will_train_and_a_resource_that_was_too_little_is_known(
    tmp_path: Path,
) -> None:
    opened = opened_in(tmp_path, 0, 1, 2)
    opened.complete(1, Description(1, update(layouts(), 1).package, 1))
    opened.allow(Budget({"energy": 50.0}), {"energy": 10.0}, spare=2)
    assert opened.work.allowances == {"energy": 10.0}  # two still train, and two may come
    opened.state(0, {}, "cpu")  # of which it was allowed as much as it likes
    assert opened.used_up == ""
    opened.state(0, {}, "energy")
    opened.state(2, {})
    assert opened.used_up == "energy"


def test_outcomes_that_count_say_whether_the_clients_state_has_moved(tmp_path: Path) -> None:
    opened = opened_in(tmp_path, 0, 1)
    for seat in (0, 1):
        opened.complete(seat, Description(1, update(layouts(), seat).package, 1, moved=True))
    counted, late = Outcome(0, b"a", Verdict.COUNTED), Outcome(1, b"b", Verdict.LATE)
    assert opened.marked([counted, late]) == (replace(counted, moved=True), late)


def test_folding_ahead_is_begun_once_at_a_time(tmp_path: Path) -> None:
    opened = opened_in(tmp_path, 0, 1)
    assert [opened.begin_ahead(), opened.begin_ahead()] == [True, False]
    opened.end_ahead()
    assert not opened.begin_ahead()  # nothing has come since
    opened.complete(1, Description(1, update(layouts(), 1).package, 1))
    assert opened.begin_ahead()
