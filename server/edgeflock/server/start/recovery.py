"""Coming back: the committed state from its checkpoint, or rebuilt, or an older one in a new epoch."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from edgeflock.common.errors import CorruptCheckpoint, EdgeflockError
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal import decisions, journal
from edgeflock.server.journal.decisions import Story
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.learner import Learner
from edgeflock.server.service.checks import package_of

log = structlog.get_logger()


@dataclass(frozen=True)
class Asked:
    """What is asked of the run now."""

    rounds: int
    more: bool = False  # than when it was last taken up


def recover(
    story: Story, path: Path, learner: Learner, checkpoints: Checkpoints, spool: Spool, asked: Asked
) -> None:
    """Bring the learner to the state of the last committed round; the story moves back if that is lost."""
    check_known(checkpoints, story.newest)
    with contextlib.closing(journal.connect(path)) as connection:
        if _is_unwanted(story, learner, asked):
            _begin_anew(connection, story, story.committed + 1, spool)
        _remove_unknown(connection, story, checkpoints)
        if not _restore(connection, story, learner, checkpoints, spool):
            number = _newest_intact(connection, story, learner, checkpoints)
            spool.clear()  # updates of rounds that are no more; before the epoch, which they must not enter
            checkpoints.forget_after(number)
            _raise_epoch(connection, story, number)
        elif story.open_round and not story.finished and _was_settled(connection, story):
            _begin_anew(connection, story, story.open_round.round, spool)


def _is_unwanted(story: Story, learner: Learner, asked: Asked) -> bool:
    """Whether what follows the last round of training is not what is asked for now: training goes on after a
    closing task, or a closing task takes the place of the round that is open."""
    if story.over or (story.open_round and story.open_round.last):
        return asked.more and asked.rounds > story.committed
    return story.open_round is not None and learner.method.closes and asked.rounds <= story.committed


def check_known(checkpoints: Checkpoints, committed: int) -> None:
    """Raise CorruptCheckpoint if there are rounds that the journal cannot have forgotten by a crash.

    Only the round after the last committed one may be there, between its rename and its transaction;
    nothing is committed in a new journal, which is -1 here.
    """
    newest = max(checkpoints.kept(), default=0)
    if newest > committed + 1:
        knows = f"no round after {committed}" if committed >= 0 else "no round"
        raise CorruptCheckpoint(
            f"{checkpoints.root} holds round {newest}, but the journal {knows}: "
            "it is damaged or too old, restore a backup of the run directory"
        )


def _was_settled(connection: sqlite3.Connection, story: Story) -> bool:
    assert story.open_round is not None
    return decisions.is_settled(connection, story.epoch, story.open_round.round)


def _begin_anew(connection: sqlite3.Connection, story: Story, round: int, spool: Spool) -> None:
    """The run ended in the midst of a round and goes on: its members were told that their updates do not
    count, and dropped them. That word stays; the round is held again, in a new epoch.

    So it is with a round whose number another one takes."""
    log.warning("round_begins_anew", round=round)
    spool.forget(round)
    _raise_epoch(connection, story, story.committed)


def _restore(
    connection: sqlite3.Connection, story: Story, learner: Learner, checkpoints: Checkpoints, spool: Spool
) -> bool:
    """Load the last committed round, or rebuild it; return whether that was possible."""
    try:
        _load(connection, story.epoch, story.newest, learner, checkpoints)
        return True
    except CorruptCheckpoint as error:
        log.error("checkpoint_damaged", round=story.newest, reason=str(error))
    try:
        _rebuild(connection, story, learner, checkpoints, spool)
        log.warning("checkpoint_rebuilt", round=story.newest)
        return True
    except (EdgeflockError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno in journal.FULL:
            raise  # there will be space again: no reason to go back
        log.error("checkpoint_not_rebuilt", round=story.newest, reason=str(error))
    return False


def _load(
    connection: sqlite3.Connection, epoch: int, round: int, learner: Learner, checkpoints: Checkpoints
) -> None:
    digests = decisions.read_digests(connection, epoch, round)
    if digests is None:
        raise CorruptCheckpoint(f"the journal names no checkpoint of round {round}")
    learner.load(checkpoints, round, digests)


def _remove_unknown(connection: sqlite3.Connection, story: Story, checkpoints: Checkpoints) -> None:
    """Remove directories of rounds that the journal does not name: a crash came between rename and commit."""
    kept = [n for n in checkpoints.kept() if n <= story.newest]
    if len(kept) < len(checkpoints.kept()):
        log.warning("round_not_committed", round=story.newest + 1, reason="the journal does not name it")
    checkpoints.prune([n for n in kept if decisions.read_digests(connection, story.epoch, n) is not None])


def _rebuild(
    connection: sqlite3.Connection, story: Story, learner: Learner, checkpoints: Checkpoints, spool: Spool
) -> None:
    """Fold the kept spool of round r onto state r - 1; the result must be what the journal names."""
    number = story.newest
    if number < 1:
        raise CorruptCheckpoint("the initial model is damaged")
    wanted = decisions.read_digests(connection, story.epoch, number)
    _load(connection, story.epoch, number - 1, learner, checkpoints)
    counted = decisions.read_counted(connection, story.epoch, number)
    cohort = decisions.read_cohort(connection, story.epoch, number)
    roster = decisions.read_roster(connection, story.epoch, number)
    round = learner.round(number, cohort, roster, closing=bool(story.over))
    layouts = learner.update_layouts(round)
    updates = {}
    for seat, entry in spool.scan(number, counted).items():
        package = package_of(entry.header, number)
        if package is None or entry.held != package.size_bytes:
            raise CorruptCheckpoint(f"the spool of round {number} is not complete")
        updates[seat] = SpooledUpdate(seat, package, entry.data_path, layouts)
    learner.begin_fold(round)
    learner.prepare(round)
    learner.fold(counted, updates)
    learner.step(replace(round, costs=decisions.read_measured(connection, story.epoch, number)))
    saved = learner.save(checkpoints, number)
    if wanted != (saved.model.digest, saved.state_digest):
        raise CorruptCheckpoint(f"round {number} rebuilt differs from what the journal names")


def _newest_intact(
    connection: sqlite3.Connection, story: Story, learner: Learner, checkpoints: Checkpoints
) -> int:
    """Load the newest round that is intact and return its number."""
    for number in reversed(checkpoints.kept()):
        digests = decisions.read_digests(connection, story.epoch, number)
        try:
            if digests is None:
                continue
            learner.load(checkpoints, number, digests)
        except CorruptCheckpoint:
            continue
        return number
    raise CorruptCheckpoint(
        f"no checkpoint in {checkpoints.root} is intact: restore a backup of the run directory"
    )


def _raise_epoch(connection: sqlite3.Connection, story: Story, number: int) -> None:
    """Go on from that round in a new epoch; clients ahead of it will be told."""
    lost, digests = story.newest, decisions.read_digests(connection, story.epoch, number)
    assert digests is not None  # a round that was committed
    story.epoch += 1
    story.committed, story.over = number, ""
    story.open_round, story.added, story.closed = None, None, None
    connection.execute("BEGIN")
    connection.execute(
        "INSERT INTO rounds (epoch, round, cohort, committed, model_digest, state_digest) "
        "VALUES (?, ?, '[]', 1, ?, ?)",
        (story.epoch, number, *digests),
    )
    decisions.write_meta(connection, epoch=str(story.epoch), epoch_base=str(number))
    journal.write_event(
        connection, "epoch_raised", {"epoch": story.epoch, "round": number, "lost_up_to": lost}
    )
    connection.execute("COMMIT")
    log.error("epoch_raised", epoch=story.epoch, round=number, lost_up_to=lost)
