"""Committing: a new state and its rows become durable together, and one line says everything of the round."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import Round
from edgeflock.server.core.decisions import Scored
from edgeflock.server.core.effects import Announce, CommitRound, TestModel
from edgeflock.server.core.events import Committed
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.rows import Row
from edgeflock.server.costs.time_line import OF_A_ROUND
from edgeflock.server.engine.means import Means
from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.engine.opening import wants_no
from edgeflock.server.engine.scoring import ClientScores
from edgeflock.server.files.checkpoints import Saved
from edgeflock.server.journal.journal import Commit, Evaluation

log = structlog.get_logger()


@dataclass(frozen=True)
class Stepped:
    """What the step to the new state has brought."""

    metrics: Mapping[str, float]  # of the method
    saved: Saved
    tests: Sequence[TestModel]  # of the new state
    stop: str  # why the next round is not opened after all


async def commit_round(
    means: Means, machine: RunMachine, opened: OpenRound, effect: CommitRound
) -> Committed:
    """Make the round count."""
    effect = replace(effect, outcomes=opened.marked(effect.outcomes))
    stop, before = await _write(means, machine, opened, effect)
    means.verdicts.add(effect.round, effect.outcomes)
    scored = None
    if before is not None and not means.scoring.tests.here:
        scored = Scored(effect.round - 1, ((before.model, before.found),), ())
    return Committed(effect.round, time.monotonic(), stop, scored)


async def _write(
    means: Means, machine: RunMachine, opened: OpenRound, effect: CommitRound
) -> tuple[str, Evaluation | None]:
    """Write state, costs and the next opening; return why there is none after all, and how the devices found
    the model of the round before."""
    bookkeeping, number = means.bookkeeping, effect.round
    measured = opened.measured(bookkeeping.round_s(number))
    told = opened.told(measured | bookkeeping.spending.used_with(opened))
    round = replace(opened.work.round, costs=told)
    stepped = await means.threads.compute(_step_and_save, means, round, effect, opened)
    rows = bookkeeping.close_round(machine, opened)
    metrics = {**stepped.metrics, **bookkeeping.server_use(number, tested_s=means.scoring.took_s)}
    scores = ClientScores.of(means.scoring.marking, opened.scores, effect.outcomes)
    before = scores.before(means.scoring.tests.name_on_devices)
    with bookkeeping.unwritten(rows) as costs:
        line = canonical_line(
            machine.roster.names, effect, metrics, bookkeeping.time_line.of(number), rows.rows
        )
        name = "last_round_committed" if machine.current.last else "round_committed"
        done, said = Announce(name, line | costs.spent.fields()), scores.announcements(number, before)
        commit = Commit(
            round=number,
            digests=(stepped.saved.model.digest, stepped.saved.state_digest),
            outcomes=effect.outcomes,
            next=None if stepped.stop else effect.next,
            values=metrics,
            measured=round.costs,
            costs=costs,
            conduct=effect.conduct,
            evaluations=scores.summaries(),
            scores=scores.by_seat,
            before=before,
            announcements=(*said, *effect.announcements, done),
            tests=stepped.tests,
        )
        await asyncio.wrap_future(means.journal.commit(commit))
    for one in (done, *said):
        log.info(one.name, **one.fields)
    return stepped.stop, before


def _step_and_save(means: Means, round: Round, effect: CommitRound, opened: OpenRound) -> Stepped:
    metrics = {**means.learner.step(round), **({} if round.closing else means.learner.own_operations())}
    saved = means.learner.save(means.files.checkpoints, round.number)
    tests = means.scoring.take(round.number, means.learner, last=round.closing)
    stop = wants_no(means, effect.next, round.costs, opened) if effect.next is not None else ""
    return Stepped(metrics, saved, tests, stop)


def canonical_line(
    names: Mapping[int, str],
    effect: CommitRound,
    metrics: Mapping[str, float],
    seconds: Mapping[str, float],
    rows: Mapping[int, Row],
) -> dict[str, object]:
    """Return the one line that says everything of a round."""
    missed = [item for item in effect.outcomes if item.verdict is not Verdict.COUNTED]
    return {
        "round": effect.round,
        "counted": len(effect.outcomes) - len(missed),
        "not_counted": {names[item.seat]: str(item.verdict) for item in missed},
        **{name: value for name, value in metrics.items() if not name.startswith("server_")},
        **{name: round(value, 6) for name, value in seconds.items()},
        "seconds": round(sum(value for name, value in seconds.items() if name in OF_A_ROUND), 6),
        "bytes_down": sum(int(row["bytes_down"] or 0) for row in rows.values()),
        "bytes_up": sum(int(row["bytes_up"] or 0) for row in rows.values()),
        "flops": sum(row.get("flops") or 0 for row in rows.values()),
    }


async def prune(means: Means, round: int, tested: Collection[int]) -> None:
    """Remove the checkpoints that no recovery, test or reader needs (DESIGN rule 4: r - 1 stays)."""
    await means.threads.write(_prune, means, round, tested)


def _prune(means: Means, round: int, tested: Collection[int]) -> None:
    checkpoints, every = means.files.checkpoints, means.files.keep_every
    keep = {0, round, round - 1, *tested}
    keep.update(number for number in checkpoints.kept() if every and number % every == 0)
    checkpoints.prune(keep, upto=round)
