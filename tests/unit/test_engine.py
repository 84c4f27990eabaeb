"""A run in motion: what it does ahead, whom it shows, and what it gives back, all of it when it is left."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import Kind, Scope
from edgeflock.methods.kit.base import Bundles, Method, Params, Round, ServerHalf, State
from edgeflock.server.engine import bookkeeping
from edgeflock.server.engine.bookkeeping import Bookkeeping
from edgeflock.server.engine.transfer import Download, Header, Slot
from edgeflock.server.engine.views import MemberStatus
from support.tiny_run import update
from support.tiny_server import WAIT_S, Home

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


def opened(folder: Path, suffix: str) -> list[str]:
    """Return the files of a folder, by the end of their names, that this process has open."""
    gc.collect()
    links = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    paths = [Path(os.readlink(link)) for link in links if link.is_symlink()]
    return [path.name for path in paths if path.is_relative_to(folder) and path.suffix == suffix]


async def until(done: Callable[[], bool]) -> None:
    """Wait for what a thread does, of which nobody tells."""
    while not done():  # noqa: ASYNC110 - so there is no event
        await asyncio.sleep(0.001)


class PersonalHalf(ServerHalf[Params]):
    """FedAvg with a package for each client beside the shared one."""

    def personal(self, state: State, round: Round, seat: int) -> Bundles:
        return {Kind.MODEL: state.model + seat}

    def personal_kinds(self, round: Round) -> tuple[Kind, ...]:
        return (Kind.MODEL,)


@needs_proc
def test_a_clients_own_package_is_closed_when_its_update_is_here(tmp_path: Path) -> None:
    """Memory and descriptors must not grow with the clients of a round."""
    home = Home(tmp_path, method=Method(name="personal", summary="", server=PersonalHalf))

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
            for seat in (0, 1):
                found = await run.intake.download(f"c{seat}", 1, Scope.PERSONAL)
                assert isinstance(found, Download)
                del found
            assert len(opened(tmp_path, ".package")) == 2
            await run.deliver(update(home.layouts, 0), 0)
            assert opened(tmp_path, ".package") == ["personal-000001.package"]

    asyncio.run(asyncio.wait_for(play(), WAIT_S))


@needs_proc
def test_who_leaves_a_run_waits_for_what_is_being_written_and_gives_all_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, done = Home(tmp_path), list[str]()
    made, write_last = update(home.layouts, 0), Bookkeeping.write_last

    async def write() -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        done.append("what was on its way")

    async def last(*given: Any) -> None:
        done.append("the last row")
        await write_last(*given)

    async def play() -> None:
        monkeypatch.setattr(Bookkeeping, "write_last", last)
        async with home.run() as run:
            await run.gather()
            slot = await run.intake.offer("c0", Header(Description(1, made.package, 1), {}))
            assert isinstance(slot, Slot)
            assert await slot.begin() is None
            assert await slot.append(0, made.payload[:100], extend(0, made.payload[:100])) is None
            assert sorted(opened(tmp_path, ".data")) == ["000000.data"]
            run.engine.accompany(write())

    asyncio.run(asyncio.wait_for(play(), WAIT_S))
    assert done == ["what was on its way", "the last row"]
    assert opened(tmp_path, ".data") == []


def test_what_is_here_without_a_gap_is_folded_while_the_rest_is_on_its_way(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
            await run.deliver(update(home.layouts, 1), 1)
            assert run.learner._fold.folded == [], "its neighbour is not here"
            await run.deliver(update(home.layouts, 0), 0)
            await until(lambda: run.learner._fold.folded == [0, 1])
            await run.deliver(update(home.layouts, 2), 2)
            await run.committed(1)

    asyncio.run(asyncio.wait_for(play(), WAIT_S))
    ((busy_s,),) = home.rows("SELECT value FROM round_costs WHERE round = 1 AND name = 'fold_busy'")
    assert 0 < busy_s < time.monotonic()


def test_who_waits_for_a_seat_is_seen_and_is_not_ready(tmp_path: Path) -> None:
    async def play() -> None:
        async with Home(tmp_path).run() as run:
            assert run.intake.online("late") is None
            assert run.now.members == (MemberStatus("late", online=True),)
            assert (run.now.members[0].ready, run.now.members[0].seat) == (False, None)

    asyncio.run(asyncio.wait_for(play(), WAIT_S))


@needs_proc
def test_what_came_too_late_is_closed_when_the_next_round_is_opened(tmp_path: Path) -> None:
    home = Home(tmp_path, min_updates=2)
    made = update(home.layouts, 0)

    async def play() -> None:
        async with home.run() as run:
            await run.gather()
            slot = await run.intake.offer("c0", Header(Description(1, made.package, 1), {}))
            assert isinstance(slot, Slot)
            assert await slot.begin() is None
            assert await slot.append(0, made.payload[:100], extend(0, made.payload[:100])) is None
            for seat in (1, 2):
                await run.deliver(update(home.layouts, seat), seat)
            run.overdue()
            await run.open(2)
            await until(lambda: not opened(tmp_path, ".data"))

    asyncio.run(asyncio.wait_for(play(), WAIT_S))


def test_cpu_seconds_are_charged_to_the_round_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the notes in its course, by commits, and by the last word of a life."""
    monkeypatch.setattr(bookkeeping, "KEEP_S", 0.001)
    home, charged, charge = Home(tmp_path), list[int](), Bookkeeping.charge

    def charging(self: Bookkeeping, round: int) -> None:
        charged.append(round)
        charge(self, round)

    async def play() -> None:
        monkeypatch.setattr(Bookkeeping, "charge", charging)
        async with home.run() as run:
            await run.gather()
            for seat in range(3):
                await run.deliver(update(home.layouts, seat), seat)
            await run.open(2)
            before = len(charged)
            await run.deliver(update(home.layouts, 0, 2), 0)
            await until(lambda: len(charged) > before)
            monkeypatch.setattr(bookkeeping, "KEEP_S", 1000.0)
        assert set(charged[before:]) == {2}
        assert charged[-1] == 2

    asyncio.run(asyncio.wait_for(play(), WAIT_S))
    asyncio.run(asyncio.wait_for(nothing(home), WAIT_S))
    assert charged[-1] == 2, "a life in which nothing moved has its seconds, too"


async def nothing(home: Home) -> None:
    async with home.run() as run:
        await run.open(2)
