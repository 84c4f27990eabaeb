"""The one door: a whole run without a network, in the run's own values."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from pathlib import Path

import pytest

from edgeflock.common.errors import JournalBroken
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import Scope
from edgeflock.common.reason import Reason
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.core.refusal import Refused
from edgeflock.server.engine.intake import Settled
from edgeflock.server.engine.transfer import Download, Header, Slot
from edgeflock.server.engine.views import RunState
from edgeflock.server.journal.past import Past
from edgeflock.server.service.views import view_to_wire
from support.tiny_run import update
from support.tiny_server import WAIT_S, Home, Motion

NAMES = ("c0", "c1", "c2")
OVER = "all 1 rounds are done"  # as who has read the ending says goodbye


def test_clients_come_deliver_hear_the_verdict_and_the_end_by_values_alone(tmp_path: Path) -> None:
    home = Home(tmp_path, rounds=1)

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
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
                run.intake.told(name)
                run.intake.leave(name, OVER)
            await parting

    asyncio.run(asyncio.wait_for(play(), 3 * WAIT_S))


async def turns() -> None:
    """Let the loop come round often enough for whatever is due."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_who_was_told_of_the_end_is_waited_for_until_it_has_said_goodbye(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that gRPC has taken may never come; who has heard is known to the next life, too."""
    home = Home(tmp_path, rounds=1)

    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with home.run() as run:
            await run.gather()
            run.intake.leave("c2", "shut down")  # it knows nothing of an end
            for seat in range(3):
                await run.deliver(update(home.layouts, seat), seat)
            await run.until(lambda: run.now.state is RunState.FINISHED)
            parting = asyncio.create_task(run.intake.farewell())
            for name in NAMES:
                run.intake.told(name)
            run.intake.leave("c0", OVER)
            run.intake.leave("c1", "shut down")  # that, too, before it has read the view
            await asyncio.sleep(0)
            whole = loop.time
            monkeypatch.setattr(loop, "time", lambda: whole() + 3600)
            await turns()
            assert not parting.done()
            run.intake.leave("c2", OVER)
            await turns()
            assert not parting.done()
            run.intake.leave("c1", OVER)  # it is back
            await parting

    asyncio.run(play())
    assert home.resume().parted == {0, 1, 2}


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
            await run.gather()
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


def test_an_update_that_was_made_from_another_model_is_no_update_of_this_round(tmp_path: Path) -> None:
    """A device that was away while the server was restored from a backup brings one of the other history."""
    home = Home(tmp_path, clients=3, rounds=3)
    made = update(home.layouts, 0)

    def header(made_from: bytes, moved: bool | None = None) -> Header:
        return Header(Description(1, made.package, samples=1, made_from=made_from, moved=moved))

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
            await run.open(1)
            wrong = await run.intake.offer("c0", header(b"x" * 16))
            assert isinstance(wrong, Refused)
            assert wrong.reason is Reason.NO_SUCH_TASK
            assert isinstance(await run.intake.offer("c0", header(b"")), Slot)  # of a client of before
            right = await run.intake.offer("c0", header(run.work.shared.package.digest, moved=True))
            assert isinstance(right, Slot)
            assert await right.begin() is None
            assert await right.append(0, made.payload, extend(0, made.payload)) is None
            assert await right.complete() is None

    asyncio.run(asyncio.wait_for(play(), 3 * WAIT_S))

    async def other_history() -> None:
        async with home.run() as run:
            await run.open(1)
            assert run.received == [0]

    asyncio.run(asyncio.wait_for(other_history(), 3 * WAIT_S))
    (log,) = (home.run_dir / "spool" / "000001").glob("000000.log")
    stored, body = log.read_bytes(), header(b"y" * 16, moved=True).described.to_bytes()
    size = int.from_bytes(stored[:4], "little")
    log.write_bytes(struct.pack("<II", len(body), extend(0, body)) + body + stored[8 + size :])

    async def spoiled() -> None:
        async with home.run() as run:
            await run.open(1)
            assert run.received == []

    asyncio.run(asyncio.wait_for(spoiled(), 3 * WAIT_S))


def test_a_view_names_where_the_clients_state_must_be_also_after_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path, clients=3, rounds=9)
    told: list[tuple[tuple[int, Outcome], ...]] = []

    async def deliver(run: Motion, number: int, *moved: bool | None) -> None:
        await run.open(number)
        for seat, one in enumerate(moved):
            made = update(home.layouts, seat, number)
            await run.hand_in(Description(number, made.package, 1, moved=one), made, seat)
        await run.committed(number)

    def standing(run: Motion) -> list[tuple[int, bool | None] | None]:
        found = (run.intake.view(name).standing for name in NAMES)
        return [None if one is None else (one[0], one[1].moved) for one in found]

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
            assert standing(run) == [None] * 3
            await deliver(run, 1, True, False, True)
            assert standing(run) == [(1, True), None, (1, True)]
            await deliver(run, 2, False, False, None)
            assert standing(run) == [(1, True), None, (2, None)]
            for number in (3, 4):
                await deliver(run, number, False, False, False)
            told.extend(run.intake.view(name).outcomes for name in NAMES)
            assert [[number for number, _ in one] for one in told] == [[3, 4]] * 3

    async def restarted() -> None:
        async with home.run() as run:
            assert [run.intake.view(name).outcomes for name in NAMES] == told
            assert standing(run) == [(1, True), None, (2, None)]
            views = [view_to_wire(run.intake.view(name)) for name in NAMES]
            assert [view.HasField("standing") for view in views] == [True, True, False]
            assert [views[0].standing.round, views[1].standing.round] == [1, 0]

    asyncio.run(asyncio.wait_for(play(), 3 * WAIT_S))
    asyncio.run(asyncio.wait_for(restarted(), 3 * WAIT_S))


def test_an_update_that_is_not_wanted_is_told_why_and_when_to_come_again(tmp_path: Path) -> None:
    home = Home(tmp_path, clients=3, rounds=3)

    def header(round: int, seat: int = 0) -> Header:
        return Header(Description(round, update(home.layouts, seat).package, samples=1))

    async def play() -> None:
        async with home.run() as run:
            await run.gather()

            async def refused(client_id: str, header: Header) -> Refused:
                found = await run.intake.offer(client_id, header)
                assert isinstance(found, Refused)
                return found

            assert await refused("x", header(1)) == Refused(
                Reason.NO_SUCH_TASK, "you have no seat in this run"
            )
            assert await refused("c0", header(7)) == Refused(Reason.NO_SUCH_TASK, "round 7 is not open")
            opened, run.engine.opened = run.engine.opened, None
            assert await refused("c0", header(1)) == Refused(Reason.BUSY, "round 1 is being opened", 100)
            run.engine.opened = opened
            slot = await run.intake.offer("c1", header(1, 1))
            package = await run.intake.download("c1", 1, Scope.SHARED)
            assert isinstance(slot, Slot)
            assert isinstance(package, Download)
            assert await package.message(0, 1 << 20) == await package.message(0, 1 << 20)
            await run.deliver(update(home.layouts, 0), 0)
            late = "another update of yours is complete in round 1"
            assert await refused("c0", header(1, 2)) == Refused(Reason.LATE, late)
            assert isinstance(await run.intake.offer("c0", header(1)), Slot), "it is asked for again"
            run.intake.refused("c1", 1, "no data today")
            gone = "you have no task in round 1"
            assert await refused("c1", header(1, 1)) == Refused(Reason.NO_SUCH_TASK, gone)
            assert await run.intake.download("c1", 1, Scope.SHARED) is None
            for word in (await slot.begin(), await slot.append(0, b"", 0), await slot.complete()):
                assert word is not None
                assert word.reason is Reason.BUSY
            run.engine.opened = None
            assert isinstance(await package.message(0, 1 << 20), Refused)
            run.engine.opened = opened
            run.intake.drain()
            going = Refused(Reason.DRAINING, "the server is going down", 1000)
            assert (await refused("c2", header(1, 2)), run.intake.join("c2")) == (going, going)

    asyncio.run(asyncio.wait_for(play(), 3 * WAIT_S))
