"""Coming back to a run directory of which something is damaged."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import sqlite3
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.common.errors import CorruptCheckpoint, JournalBroken
from edgeflock.methods.kit.base import Accumulators, Method, Params, Plan, Round, ServerHalf, State
from edgeflock.server.core.events import Ticked
from edgeflock.server.journal.past import Past
from edgeflock.server.journal.schema import connect
from edgeflock.server.learning.learner import Learner
from support.tiny_run import update
from support.tiny_server import Home, Motion

SEATS = [(0, "c0"), (1, "c1"), (2, "c2")]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, rounds=9).seat()


def play(home: Home, upto: int, *, then: int = 0) -> None:
    """Serve until round `upto` is committed and rest there; let `then` updates of the next round come in."""

    async def rounds() -> None:
        async with home.run() as run:
            await go(run)

    async def go(run: Motion) -> None:
        await run.intake.resume()
        for index in range(3):
            run.intake.ready(f"c{index}", 10)
        for number in range(run.now.committed + 1, upto + 1):
            await run.open(number)
            if number == upto and not then:
                await run.intake.pause()
            for index in range(3):
                await run.deliver(update(home.layouts, index, number), index)
        await run.committed(upto)
        if then:
            await run.open(upto + 1)
            for index in range(then):
                await run.deliver(update(home.layouts, index, upto + 1), index)

    asyncio.run(rounds())


def model(home: Home) -> torch.Tensor:
    """Come back and return the model that the server would go on with."""
    _, brain, _ = home.assemble()
    return brain.state.model


def damage(home: Home, *rounds: int) -> None:
    for round in rounds:
        path = home.run_dir / "rounds" / f"{round:06d}" / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)


def digest(home: Home, round: int) -> str:
    ((found,), *_) = home.rows(f"SELECT model_digest FROM rounds WHERE round = {round} ORDER BY epoch DESC")
    return str(found)


def test_an_intact_run_is_loaded_as_it_is(home: Home) -> None:
    play(home, 3)
    expected = model(home)
    resumed, brain, _ = home.assemble()
    assert (resumed.committed, resumed.epoch) == (3, 0)
    assert torch.equal(brain.state.model, expected)


def test_a_damaged_checkpoint_is_rebuilt_from_the_spool_with_the_same_digest(home: Home) -> None:
    play(home, 3)
    expected, named = model(home), digest(home, 3)
    damage(home, 3)
    with capture_logs() as logs:
        resumed, brain, files = home.assemble()
    assert [entry["event"] for entry in logs] == ["checkpoint_damaged", "checkpoint_rebuilt"]
    assert (resumed.committed, resumed.epoch) == (3, 0)
    assert torch.equal(brain.state.model, expected)
    assert brain.written is not None
    assert brain.written.digest == named
    files.checkpoints.load(3, brain.state, (named, ""))


def test_a_rebuilt_round_that_is_not_the_one_of_the_journal_does_not_count(home: Home) -> None:
    play(home, 3)
    home.change(f"UPDATE rounds SET model_digest = '{digest(home, 2)}' WHERE round = 3")
    with capture_logs() as logs:
        resumed, *_ = home.assemble()
    damaged, why, _ = logs
    assert (damaged["event"], why["event"]) == ("checkpoint_damaged", "checkpoint_not_rebuilt")
    assert "differs from what the journal names" in why["reason"]
    assert (resumed.committed, resumed.epoch) == (2, 1)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("damaged", [(), (3,)], ids=["sound", "rebuilt"])
def test_a_checkpoint_that_cannot_be_read_now_is_not_damaged(
    home: Home, monkeypatch: pytest.MonkeyPatch, number: int, damaged: tuple[int, ...]
) -> None:
    """Neither the last one, nor the one before from which it would be rebuilt: nothing is given up."""
    play(home, 3)
    damage(home, *damaged)
    read, wanted = os.readv, (home.run_dir / "rounds" / f"{2 if damaged else 3:06d}").resolve()

    def fail(descriptor: int, buffers: list[memoryview]) -> int:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == wanted:
            raise OSError(number, os.strerror(number))
        return read(descriptor, buffers)

    with monkeypatch.context() as patch:
        patch.setattr(os, "readv", fail)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as raised:
            home.assemble()
    assert raised.value.filename == str(home.run_dir / "rounds" / wanted.name / "model.safetensors")
    resumed, _, files = home.assemble()
    assert (resumed.epoch, resumed.committed, files.checkpoints.kept()) == (0, 3, [0, 2, 3])


def test_a_commit_that_found_no_room_is_computed_again_from_what_it_used(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has what the method was told when the state was moved, not what it would be told later."""
    told, whole = list[dict[str, float]](), Learner.step

    def step(learner: Learner, round: Round) -> dict[str, float]:
        told.append(dict(round.costs))
        return whole(learner, round)

    monkeypatch.setattr(Learner, "step", step)

    async def go() -> None:
        async with home.run() as run:
            commit, full = run.journal.commit, Future[None]()
            full.set_exception(JournalBroken(sqlite3.OperationalError("database or disk is full")))
            tries = iter((lambda _: full, commit))
            monkeypatch.setattr(run.journal, "commit", lambda one: next(tries)(one))
            for index in range(3):
                run.intake.ready(f"c{index}", 10)
            await run.open(1)
            await run.intake.pause()
            for index in range(3):
                await run.deliver(update(home.layouts, index, 1), index)
            await run.until(lambda: "no space" in run.now.reason)
            run.engine.post(Ticked(time.monotonic() + 10))
            await run.committed(1)
            past = await asyncio.wrap_future(run.journal.ask(lambda past: past.round(1)))
            assert past.measured == told[0]
            assert len(told) == 2

    asyncio.run(go())


def test_every_kth_checkpoint_stays_beside_the_first_and_the_last_two(tmp_path: Path) -> None:
    home = Home(tmp_path, rounds=9, keep_every=3).seat()
    play(home, 8)
    assert sorted(path.name for path in (home.run_dir / "rounds").iterdir()) == [
        f"{round:06d}" for round in (0, 3, 6, 7, 8)
    ]


@pytest.mark.parametrize("how", ["gone", "directory"])
def test_a_lost_checkpoint_is_rebuilt_too(home: Home, how: str) -> None:
    play(home, 2)
    expected = model(home)
    path = home.run_dir / "rounds" / "000002"
    shutil.rmtree(path) if how == "directory" else (path / "model.safetensors").unlink()
    assert torch.equal(model(home), expected)


def test_a_rebuilt_run_goes_on_to_the_same_bits(home: Home, tmp_path: Path) -> None:
    play(home, 2, then=2)
    (tmp_path / "other").mkdir()
    other = Home(tmp_path / "other", rounds=9)
    shutil.copytree(home.run_dir, other.run_dir, dirs_exist_ok=True)
    damage(other, 2)
    play(home, 4)
    play(other, 4)
    assert digest(home, 4) == digest(other, 4)


def test_a_round_without_a_rejected_update_is_rebuilt_without_it(home: Home) -> None:
    """The counted set of the journal is folded, not what lies in the spool."""
    home.rules = replace(home.rules, min_updates=2)

    async def poisoned() -> None:
        async with home.run() as run:
            for index in range(3):
                run.intake.ready(f"c{index}", 10)
            await run.open(1)
            await run.intake.pause()
            for index in range(3):
                scalars = {"loss": float("nan")} if index == 1 else {}
                await run.deliver(update(home.layouts, index, 1, scalars=scalars), index)
            await run.committed(1)

    asyncio.run(poisoned())
    expected = model(home)
    damage(home, 1)
    resumed, brain, _ = home.assemble()
    assert (resumed.committed, resumed.epoch) == (1, 0)
    assert torch.equal(brain.state.model, expected)


class Shared(ServerHalf[Params]):
    """Moves by the sum over N."""

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        state.model.add_(sums.vectors["delta"], alpha=1 / len(round.samples))
        return {}


def test_n_of_a_round_is_that_of_its_opening_after_a_restart_and_in_a_rebuilt_round(home: Home) -> None:
    home.method = Method(name="shared", summary="", server=Shared)
    play(home, 2, then=1)
    home.change("UPDATE seats SET samples = NULL WHERE seat = 1")
    home.change("UPDATE seats SET samples = 99 WHERE seat = 2")

    async def look() -> dict[int, int]:
        async with home.run() as run:
            await run.open(3)
            return dict(run.work.round.samples)

    assert asyncio.run(look()) == {0: 10, 1: 10, 2: 10}
    expected = model(home)
    damage(home, 2)
    with capture_logs() as logs:
        rebuilt = model(home)
    assert logs[-1]["event"] == "checkpoint_rebuilt"
    assert torch.equal(rebuilt, expected)


def test_what_cannot_be_rebuilt_raises_the_epoch_and_goes_back_to_an_older_round(home: Home) -> None:
    play(home, 2)
    older = model(home)
    play(home, 3)
    damage(home, 3)
    shutil.rmtree(home.run_dir / "spool")
    with capture_logs() as logs:
        resumed, brain, _ = home.assemble()
    assert (resumed.committed, resumed.epoch, resumed.open_round) == (2, 1, None)
    assert torch.equal(brain.state.model, older)
    assert home.events("epoch_raised") == [{"epoch": 1, "lost_up_to": 3, "round": 2}]
    assert logs[-1]["event"] == "epoch_raised"
    again = home.resume()
    assert (again.committed, again.epoch) == (2, 1)


def test_nothing_of_the_spool_is_taken_over_into_a_new_epoch(home: Home) -> None:
    """It holds updates that were trained from a state which is no more."""
    play(home, 3, then=2)
    damage(home, 3, 2)
    with capture_logs():
        resumed, _, files = home.assemble()
    assert (resumed.committed, resumed.epoch) == (0, 1)
    assert not files.spool.root.exists()


def test_a_run_goes_on_in_its_new_epoch_and_can_be_resumed_there(home: Home) -> None:
    play(home, 3)
    expected = digest(home, 3)
    damage(home, 3)
    shutil.rmtree(home.run_dir / "spool")
    with capture_logs():
        play(home, 4)
    resumed = home.resume()
    assert (resumed.committed, resumed.epoch) == (4, 1)
    assert digest(home, 3) == expected
    assert model(home) is not None


def test_rounds_of_the_epoch_before_stay_and_help_a_second_time(home: Home) -> None:
    play(home, 3)
    damage(home, 3)
    shutil.rmtree(home.run_dir / "spool")
    with capture_logs():
        home.assemble()  # epoch 1, at round 2
        home.assemble()
        assert (home.run_dir / "rounds" / "000000").exists()
        damage(home, 2)
        resumed, _, _ = home.assemble()
    assert (resumed.committed, resumed.epoch) == (0, 2)


def test_a_new_epoch_knows_what_the_clients_were_told_up_to_its_base(home: Home) -> None:
    """They compare their own state with it: nobody starts afresh who has a state that still holds."""
    play(home, 3)
    with contextlib.closing(connect(home.journal_path)) as connection:
        before = Past(connection, 0).last_outcomes(2)
    damage(home, 3)
    shutil.rmtree(home.run_dir / "spool")
    with capture_logs():
        resumed, _, _ = home.assemble()
    with contextlib.closing(connect(home.journal_path)) as connection:
        assert Past(connection, resumed.epoch).last_outcomes(resumed.committed) == before
    assert {index: sorted(rounds) for index, rounds in before.items()} == {
        index: [1, 2] for index in range(3)
    }


def test_the_base_of_an_epoch_is_rebuilt_from_the_spool_of_the_epoch_before(home: Home) -> None:
    home.rules = replace(home.rules, min_updates=2)
    play(home, 2)
    spoil(home, 3)
    with capture_logs():
        home.assemble()
        expected = model(home)
        damage(home, 2)
        resumed, brain, _ = home.assemble()
    assert (resumed.committed, resumed.epoch) == (2, 1)
    assert torch.equal(brain.state.model, expected)


def spoil(home: Home, number: int) -> None:
    """Let the run fail in a round: two of three updates are not finite."""

    async def poisoned() -> None:
        async with home.run() as run:
            await run.intake.resume()
            await run.open(number)
            for index in range(3):
                scalars = {"loss": float("nan")} if index else {}
                await run.deliver(update(home.layouts, index, number, scalars=scalars), index)
            await run.until(lambda: run.now.ending is not None)

    with capture_logs():
        asyncio.run(poisoned())


def test_a_failed_run_that_is_tried_again_holds_its_last_round_anew(home: Home) -> None:
    """Everybody was told that nothing counts and has dropped it: what the spool holds is nobody's."""
    home.rules = replace(home.rules, min_updates=2)
    play(home, 2)
    spoil(home, 3)
    home.rules = replace(home.rules, min_updates=1)
    with capture_logs() as logs:
        resumed, _, files = home.assemble()
        assert (resumed.committed, resumed.epoch, resumed.open_round) == (2, 1, None)
        assert not (files.spool.root / "000003").exists()
        play(home, 3)
    assert "round_begins_anew" in [entry["event"] for entry in logs]
    rows = home.rows("SELECT epoch, seat, verdict FROM outcomes WHERE round = 3")
    failed = [(0, 0, "discarded"), (0, 1, "non_finite"), (0, 2, "non_finite")]
    assert rows == failed + [(1, index, "counted") for index in range(3)]


class Stops(ServerHalf[Params]):
    """Wants two rounds."""

    def plan(self, state: State, plan: Plan, round: Round) -> Plan:
        return replace(plan, stop="two are enough" if round.number > 2 else "")


@pytest.mark.parametrize("paused", [False, True])
def test_a_method_that_stopped_stops_again_after_a_crash(home: Home, paused: bool) -> None:
    """Its reason is a function of the committed state, asked for before a round is opened."""
    play(home, 2 if paused else 3)  # the crash came before the ending, or nobody asked in a pause
    if not paused:
        home.change("DELETE FROM rounds WHERE committed = 0")
    home.method = Method("stops", "two rounds", server=Stops)

    async def ended() -> str:
        async with home.run() as run:
            await run.intake.resume()
            await run.until(lambda: run.now.ending is not None)
            return run.now.reason

    assert asyncio.run(ended()) == "two are enough"


def test_when_nothing_is_intact_a_sentence_says_so_and_nothing_is_changed(home: Home) -> None:
    play(home, 3)
    damage(home, 0, 2, 3)
    shutil.rmtree(home.run_dir / "spool")
    with capture_logs(), pytest.raises(CorruptCheckpoint) as raised:
        home.assemble()
    root = home.run_dir / "rounds"
    assert str(raised.value) == f"no checkpoint in {root} is intact: restore a backup of the run directory"
    assert raised.value.exit_code == 1
    assert home.resume().committed == 3


@pytest.mark.parametrize(("begun", "knows"), [(True, "no round after 0"), (False, "no round")])
def test_rounds_that_no_crash_can_have_made_the_journal_forget_are_touched_by_nobody(
    tmp_path: Path, begun: bool, knows: str
) -> None:
    home = Home(tmp_path)
    if begun:
        home.assemble()
    least = home.run_dir / "rounds" / ("000002" if begun else "000001")
    least.mkdir(parents=True)
    with pytest.raises(CorruptCheckpoint, match=f"but the journal knows {knows}: it is damaged or too old"):
        home.assemble()
    assert least.exists()


def test_a_round_that_the_journal_does_not_name_is_removed(home: Home) -> None:
    """A crash between the rename and the transaction."""
    play(home, 2)
    rounds = home.run_dir / "rounds"
    shutil.copytree(rounds / "000002", rounds / "000003")
    (rounds / ".tmp-000004").mkdir()
    home.assemble()
    assert sorted(path.name for path in rounds.iterdir()) == ["000000", "000001", "000002"]
