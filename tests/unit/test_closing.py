"""The closing task: asked of everybody after the last round of training, durable like every round."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import Method, Plan, Round, ServerHalf, State
from edgeflock.server.core.phases import Phase
from edgeflock.server.costs.budget import Budget
from support.asks import Asks
from support.tiny_run import answer, update
from support.tiny_server import Home, Motion

CLIENTS = 3
Then = Callable[[Motion], Awaitable[None]]


class Content(Asks):
    """Has nothing to ask after all."""

    def closing(self, state: State) -> Plan | None:
        return None


class StopsAfterTwo(Asks):
    """Wants two rounds of training."""

    def plan(self, state: State, plan: Plan, round: Round) -> Plan:
        return replace(plan, stop="two are enough" if round.number > 2 else "")


def home(root: Path, half: type[ServerHalf[Any]] = Asks, **rules: Any) -> Home:
    """Return a run of two rounds whose three clients have their seats."""
    root.mkdir(exist_ok=True)
    made = Home(root, clients=CLIENTS, method=Method("asks", "asks", server=half), **{"rounds": 2, **rules})
    return made.seat()


def play(of: Home, then: Then | None = None, *, train: int = 99) -> None:
    """Serve so many rounds of training, or all that are left; then do `then` and leave."""

    async def serve() -> None:
        async with of.run() as run:
            for index in range(CLIENTS):
                run.intake.ready(f"c{index}", 10)
            for number in range(run.now.committed + 1, min(train, of.rules.rounds) + 1):
                await run.until(lambda: run.now.phase in (Phase.OPEN, Phase.ENDED))
                if run.now.over or run.now.ending:
                    break
                await one_round(run, of, number)
            await (then or everybody_answers)(run)

    asyncio.run(serve())


async def one_round(run: Motion, of: Home, number: int, **costs: float) -> None:
    await run.open(number)
    for index in run.cohort:
        await run.deliver(update(of.layouts, index, number), index, **costs)
    await run.committed(number)


async def closing(run: Motion) -> None:
    await run.until(lambda: bool(run.now.over) and run.now.phase is Phase.OPEN)


def wish(index: int) -> float:
    return float(index + 1)


def answering(*indices: int, leave: bool = False) -> Then:
    """Let these answer; then leave, or wait for the end."""

    async def then(run: Motion) -> None:
        await closing(run)
        for index in indices:
            await run.deliver(answer(index, wish=wish(index)), index)
        if not leave:
            await ended(run)

    return then


async def everybody_answers(run: Motion) -> None:
    await answering(*range(CLIENTS))(run)


async def ended(run: Motion) -> None:
    await run.until(lambda: run.now.ending is not None)


def forget_ending(of: Home) -> None:
    """As if the process had gone before it could say that the run is over."""
    of.change("DELETE FROM meta WHERE name LIKE 'ended_%'")


def sha256(of: Home) -> str:
    return hashlib.sha256((of.run_dir / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
def undisturbed(tmp_path: Path) -> str:
    """The hash of the final model of the run of two rounds in which everybody answers."""
    made = home(tmp_path / "undisturbed")
    play(made)
    return sha256(made)


# ------------------------------------------------------------------------------------- what it is


def test_everybody_is_asked_once_more_and_the_answers_settle_the_result(tmp_path: Path) -> None:
    made = home(tmp_path, cohort=1)
    work = {}

    async def look(run: Motion) -> None:
        await closing(run)
        work.update(vars(run.work))
        await everybody_answers(run)
        assert (run.now.trained, run.now.committed) == (2, 3)

    play(made, look)
    assert work["plan"].steps == 0
    assert (work["plan"].lr, work["plan"].flags) == (0.5, {"question": 1.0})
    assert (work["uploads"], work["round"].cohort, work["round"].closing) == ((), (0, 1, 2), True)
    _, brain, _ = made.assemble()
    total = sum((10 + index) * wish(index) for index in range(CLIENTS))
    assert torch.equal(brain.state.vectors["chosen"], brain.state.model + total)
    [committed] = made.events("last_round_committed")
    assert (committed["round"], committed["wishes"], committed["answered"]) == (3, total, 3)
    assert "loss" not in committed


def test_it_is_no_round_of_training(tmp_path: Path) -> None:
    made = home(tmp_path)
    play(made)
    assert len(made.events("round_committed")) == 2
    assert made.events("run_ended") == [{"kind": "completed", "reason": "all 2 rounds are done", "round": 2}]
    assert made.rows("SELECT round, last FROM rounds ORDER BY round") == [
        (0, None), (1, None), (2, None), (3, "all 2 rounds are done"),
    ]  # fmt: skip
    assert made.rows("SELECT seat, verdict FROM outcomes WHERE round = 3") == [
        (0, "counted"), (1, "counted"), (2, "counted"),
    ]  # fmt: skip


def test_who_answers_before_the_deadline_counts_even_if_nobody_does(tmp_path: Path) -> None:
    for answered in ((1,), ()):
        made = home(tmp_path / str(len(answered)))

        async def too_late(run: Motion, answered: tuple[int, ...] = answered) -> None:
            await answering(*answered, leave=True)(run)
            run.overdue()
            await ended(run)

        play(made, too_late)
        [committed] = made.events("last_round_committed")
        assert committed["answered"] == len(answered)
        assert committed["wishes"] == sum((10 + index) * wish(index) for index in answered)
        counted = made.rows("SELECT seat FROM outcomes WHERE round = 3 AND verdict = 'counted'")
        assert counted == [(index,) for index in answered]
        assert made.events("run_ended")[0]["kind"] == "completed"


def test_an_answer_that_is_not_a_number_is_left_out(tmp_path: Path) -> None:
    made = home(tmp_path)

    async def one_is_bad(run: Motion) -> None:
        await closing(run)
        for index in range(CLIENTS):
            await run.deliver(answer(index, wish=float("nan") if index == 1 else 1.0), index)
        await ended(run)

    with capture_logs():
        play(made, one_is_bad)
    verdicts = dict(made.rows("SELECT seat, verdict FROM outcomes WHERE round = 3"))
    assert verdicts == {0: Verdict.COUNTED, 1: Verdict.NON_FINITE, 2: Verdict.COUNTED}
    assert made.events("last_round_committed")[0]["wishes"] == 10 + 12


def test_it_follows_when_the_method_wants_no_further_round(tmp_path: Path) -> None:
    made = home(tmp_path, StopsAfterTwo, rounds=50)
    play(made)
    assert made.events("run_ended")[0] == {"kind": "completed", "reason": "two are enough", "round": 2}
    assert len(made.events("last_round_committed")) == 1


def test_a_method_with_nothing_to_ask_ends_without_it(tmp_path: Path) -> None:
    made = home(tmp_path, Content)
    play(made, ended)
    assert made.events("run_ended")[0] == {
        "kind": "completed",
        "reason": "all 2 rounds are done",
        "round": 2,
    }
    assert (tell(made).committed, made.rows("SELECT max(round) FROM rounds")) == (2, [(2,)])


def tell(of: Home) -> Any:
    return of.resume()


# ------------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize(("joules", "rounds"), [(1.0, 3), (5.0, 2)])
def test_it_is_left_out_when_a_budget_is_used_up(tmp_path: Path, joules: float, rounds: int) -> None:
    """The joules of the last round are stated while it is open, and charged with its commit."""
    made = home(tmp_path, budget=Budget({"energy": 14.0}))

    async def last_round(run: Motion) -> None:
        await run.open(2)
        await one_round(run, made, 2, energy_j=joules)
        await run.until(lambda: run.now.phase in (Phase.OPEN, Phase.ENDED))
        if not run.now.ending:
            await everybody_answers(run)

    play(made, last_round, train=1)
    assert made.events("run_ended")[0]["round"] == 2
    assert made.events("round_committed")[-1]["budget"] == {"energy": [CLIENTS * joules, 14.0]}
    assert tell(made).newest == rounds


# ------------------------------------------------------------------------------------- the operator


def test_a_pause_holds_it_until_resume(tmp_path: Path) -> None:
    made = home(tmp_path)

    async def pause_in_the_last_round(run: Motion) -> None:
        await run.open(2)
        await run.intake.pause()
        await one_round(run, made, 2)
        assert (run.now.phase, run.now.reason) == (Phase.COMMITTED, "paused by the operator")
        await run.intake.resume()
        await everybody_answers(run)

    play(made, pause_in_the_last_round, train=1)
    assert len(made.events("last_round_committed")) == 1


def test_a_stop_ends_the_run_without_it_and_discards_the_answers(tmp_path: Path) -> None:
    made = home(tmp_path)

    async def stop(run: Motion) -> None:
        await answering(0, leave=True)(run)
        await run.intake.stop("enough")
        await ended(run)

    play(made, stop)
    assert made.events("run_ended")[0] == {"kind": "stopped", "reason": "enough", "round": 2}
    assert {verdict for (verdict,) in made.rows("SELECT verdict FROM outcomes WHERE round = 3")} == {
        "discarded"
    }


# ------------------------------------------------------------------------------------- coming back


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_server_that_went_in_the_midst_of_it_goes_on_with_the_answers_it_had(
    tmp_path: Path, undisturbed: str, before: int
) -> None:
    made = home(tmp_path / "run")
    play(made, answering(*range(before), leave=True))

    async def rest(run: Motion) -> None:
        await closing(run)
        assert run.received == list(range(before))
        await answering(*range(before, CLIENTS))(run)

    play(made, rest)
    assert sha256(made) == undisturbed
    assert (tell(made).epoch, len(made.events("last_round_committed"))) == (0, 1)


def test_a_server_that_went_before_it_was_opened_opens_it(tmp_path: Path, undisturbed: str) -> None:
    made = home(tmp_path / "run")
    play(made, answering(leave=True))
    made.change("DELETE FROM rounds WHERE committed = 0")
    play(made)
    assert sha256(made) == undisturbed


def test_a_method_that_stopped_is_asked_again_before_it_is_opened(tmp_path: Path) -> None:
    made = home(tmp_path, StopsAfterTwo, rounds=50)
    play(made, answering(leave=True))
    made.change("DELETE FROM rounds WHERE committed = 0")
    play(made)
    assert made.events("run_ended")[0]["reason"] == "two are enough"
    assert len(made.events("last_round_committed")) == 1


def test_a_server_that_went_before_it_could_say_the_end_says_it(tmp_path: Path, undisturbed: str) -> None:
    made = home(tmp_path / "run")
    play(made)
    forget_ending(made)
    (made.run_dir / "model.safetensors").unlink()
    play(made, ended)
    assert sha256(made) == undisturbed
    assert len(made.events("last_round_committed")) == 1


def test_its_damaged_checkpoint_is_rebuilt_from_the_answers(tmp_path: Path, undisturbed: str) -> None:
    made = home(tmp_path / "run")
    play(made)
    forget_ending(made)
    shutil.rmtree(made.run_dir / "rounds" / "000003")
    with capture_logs() as logs:
        play(made, ended)
    assert "checkpoint_rebuilt" in [entry["event"] for entry in logs]
    assert sha256(made) == undisturbed


# ------------------------------------------------------------------------- more, or fewer rounds


def more(of: Home, rounds: int) -> None:
    of.rules, of.more = replace(of.rules, rounds=rounds), True


@pytest.mark.parametrize("open", [False, True])
def test_a_run_that_goes_on_with_more_rounds_ends_as_if_asked_for_them_at_once(
    tmp_path: Path, open: bool
) -> None:
    """It goes on from the last round of training, in a new epoch; the same from within the closing round."""
    at_once = home(tmp_path / "at once", rounds=4)
    play(at_once)
    made = home(tmp_path / "run")
    play(made, answering(0, leave=True) if open else None)
    more(made, 4)
    with capture_logs():
        play(made)
    assert sha256(made) == sha256(at_once)
    assert tell(made).epoch == 1
    assert len(made.events("last_round_committed")) == (1 if open else 2)
    assert made.events("run_ended")[-1]["round"] == 4


def test_without_more_rounds_a_stopped_method_stays_where_it_is(tmp_path: Path) -> None:
    """Its closing round is over, although more rounds than it wanted were allowed."""
    made = home(tmp_path, StopsAfterTwo, rounds=50)
    play(made)
    play(made, ended)
    assert (tell(made).epoch, len(made.events("last_round_committed"))) == (0, 1)


def test_with_fewer_rounds_the_open_one_gives_way_to_it(tmp_path: Path, undisturbed: str) -> None:
    made = home(tmp_path / "run", rounds=9)

    async def leave_in_the_third(run: Motion) -> None:
        await run.open(3)
        await run.deliver(update(made.layouts, 0, 3), 0)

    play(made, leave_in_the_third, train=2)
    made.rules = replace(made.rules, rounds=2)
    with capture_logs():
        play(made)
    assert sha256(made) == undisturbed
    assert tell(made).epoch == 1
