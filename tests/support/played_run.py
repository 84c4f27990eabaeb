"""A run directory at rest, of a method with a state of its own, and what a start on a copy of it makes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from structlog.testing import capture_logs

from edgeflock.methods.kit.accumulate import Accumulators
from edgeflock.methods.kit.base import Method, Params, Round, ServerHalf, State
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.journal import costs
from edgeflock.server.journal.past import Resumed
from edgeflock.server.journal.schema import connect, read_only
from support.tiny_run import update
from support.tiny_server import Home, Motion

LAST = 4  # the newest round
_UNSETTLED = shutil.ignore_patterns("*-shm", *(f"{n:06d}" for n in range(1, LAST - 1)))  # being removed
_DECISIONS = ("meta", "seats", "rounds", "outcomes")


class Momentum(ServerHalf[Params]):
    """Keeps a vector and a scalar of its own, so that there is a state file."""

    def begin(self, state: State) -> None:
        state.vectors["momentum"] = torch.zeros_like(state.model)
        state.scalars["steps"] = 0.0

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        momentum = state.vectors["momentum"]
        momentum.mul_(0.9).add_(sums.mean("delta"))
        state.model.add_(momentum)
        state.scalars["steps"] += 1.0
        return {}


@dataclass(frozen=True)
class Played:
    """The run directory, parked and as a kill leaves it, and the states after its rounds."""

    run_dir: Path
    killed: Path  # the journal's newest pages are in its -wal
    states: dict[int, State]


@dataclass(frozen=True)
class Back:
    """What a start found."""

    resumed: Resumed
    state: State
    said: list[str]


def home(folder: Path) -> Home:
    return Home(folder, rounds=9, method=Method("momentum", "with a state", server=Momentum))


def play(folder: Path, shift: int = 0) -> Played:
    """Play to the end of round LAST; with another shift, clients send other numbers."""
    made, states = home(folder), dict[int, State]()
    made.resume()
    with contextlib.closing(connect(made.journal_path)) as connection:
        seats = [(index, f"c{index}") for index in range(3)]
        connection.executemany("INSERT INTO seats (seat, client_id, samples) VALUES (?, ?, 10)", seats)

    async def rounds() -> None:
        async with made.run() as run:
            for index in range(3):
                run.intake.ready(f"c{index}", 10)
            for number in range(1, LAST + 1):
                await _round(run, made, number, shift)
                states[number] = copy.deepcopy(run.learner.state)
            shutil.copytree(made.run_dir, folder / "killed", ignore=_UNSETTLED)

    asyncio.run(rounds())
    return Played(made.run_dir, folder / "killed", states)


async def _round(run: Motion, made: Home, number: int, shift: int) -> None:
    await run.open(number)
    if number == LAST:
        await run.intake.pause()
    for index in range(3):
        await run.deliver(update(made.layouts, index, number + shift), index)
    await run.committed(number)


def come_back(folder: Path) -> Back:
    """Start on folder/run."""
    with capture_logs() as logs:
        resumed, learner, _ = home(folder).assemble()
    return Back(resumed, learner.state, [str(entry["event"]) for entry in logs])


def same(one: State, other: State) -> bool:
    return one.scalars == other.scalars and all(
        torch.equal(vector, other.vectors[name]) for name, vector in one.vectors.items()
    )


def decisions(run_dir: Path, upto: int = LAST) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the journal says is decided, of rounds up to that one."""
    with contextlib.closing(read_only(run_dir / rundir.JOURNAL)) as journal:
        found = {table: journal.execute(f"SELECT * FROM {table}").fetchall() for table in _DECISIONS}
    # No two runs use the same; of what is counted nothing is decided; it is the last round that is paused.
    other = {costs.WHOLE} if upto >= LAST else {costs.WHOLE, "paused"}
    found["meta"] = [row for row in found["meta"] if not row[0].startswith("used_") and row[0] not in other]
    return {
        table: sorted(row for row in rows if table not in ("rounds", "outcomes") or row[1] <= upto)
        for table, rows in found.items()
    }
