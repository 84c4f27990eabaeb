"""The one door: a whole run without a network, in the run's own values."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from edgeflock.common.errors import JournalBroken
from edgeflock.common.payload.description import Description
from edgeflock.common.reason import Reason
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Settled
from edgeflock.server.engine.transfer import Header
from edgeflock.server.engine.views import RunState
from edgeflock.server.journal.past import Past
from support.tiny_run import update
from support.tiny_server import WAIT_S, Home, Motion

NAMES = ("c0", "c1", "c2")


async def gather(run: Motion) -> None:
    """Let everybody come, take a seat and be ready."""
    for name in NAMES:
        assert run.intake.join(name) is None
        assert run.intake.online(name) is None
    await run.until(lambda: all(map(run.intake.seated, NAMES)))
    for name in NAMES:
        run.intake.ready(name, 10)
    await run.open(1)


def test_clients_come_deliver_hear_the_verdict_and_the_end_by_values_alone(tmp_path: Path) -> None:
    home = Home(tmp_path, rounds=1)

    async def play() -> None:
        async with home.run() as run:
            await gather(run)
            assert run.intake.join("late") == Refused(Reason.ROSTER_FULL, "all 3 seats of this run are taken")
            before = run.intake.view("c1")
            assert before == run.intake.view("c1")
            assert before.work is not None
            for seat in range(3):
                await run.deliver(update(home.layouts, seat), seat)
            await run.until(lambda: run.now.state is RunState.FINISHED)
            view = run.intake.view("c1")
            assert (view.work, [(round, word.verdict) for round, word in view.outcomes]) == (
                None,
                [(1, Verdict.COUNTED)],
            )
            parting = asyncio.create_task(run.intake.farewell())
            for name in NAMES:
                run.intake.heard(name)
                run.intake.leave(name, "it is over")
            await parting

    asyncio.run(asyncio.wait_for(play(), 3 * WAIT_S))


def test_an_old_verdict_is_read_from_the_journal_and_one_that_broke_sends_the_client_away(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, rounds=9)
    first = update(home.layouts, 0)
    header = Header(Description(1, first.package, samples=1))

    def fail(past: Past) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    async def play() -> None:
        async with home.run() as run:
            await gather(run)
            for number in (1, 2, 3):
                await run.open(number)
                for seat in range(3):
                    await run.deliver(update(home.layouts, seat, number), seat)
                await run.committed(number)
            settled = await run.intake.offer("c0", header)
            assert isinstance(settled, Settled)
            assert (settled.round, settled.outcome.verdict) == (1, Verdict.COUNTED)
            broken = asyncio.wrap_future(run.journal.ask(fail))
            assert isinstance((await asyncio.gather(broken, return_exceptions=True))[0], JournalBroken)
            away = await run.intake.offer("c0", header)
            assert isinstance(away, Refused)
            assert away.reason is Reason.DRAINING

    asyncio.run(asyncio.wait_for(play(), 3 * WAIT_S))
