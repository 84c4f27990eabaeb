"""The loop between the machine and its effects."""

from __future__ import annotations

import asyncio

from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.core.effects import Effect, Exit
from edgeflock.server.core.events import Started
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.engine.loop import Loop


def test_a_transition_that_no_table_has_ends_the_process_and_is_called_a_bug() -> None:
    async def start_twice() -> list[Effect]:
        effects: list[Effect] = []
        machine = RunMachine(Rules(rounds=1, clients=1, cohort=1, min_updates=1))
        loop = Loop(machine, RoundTimes(), effects.append)
        for _ in range(2):
            loop.post(Started(0.0))
        await loop.settle()
        return effects

    bug = "this is a bug, InvalidTransition: invalid transition [gathering -> gathering]"
    assert asyncio.run(start_twice())[-1] == Exit(Ended(EndingKind.FAILED, bug, 0))
