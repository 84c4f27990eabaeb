"""Coming back: the committed state from its checkpoint, or rebuilt, or an older one in a new epoch."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import structlog

from edgeflock.common.errors import CorruptCheckpoint, EdgeflockError
from edgeflock.server import journal, records
from edgeflock.server.checkpoint import Checkpoints
from edgeflock.server.fold import SpooledUpdate
from edgeflock.server.learner import Learner
from edgeflock.server.records import Story
from edgeflock.server.spool import Spool
from edgeflock.server.uploads import package_of

log = structlog.get_logger()


def recover(story: Story, path: Path, learner: Learner, checkpoints: Checkpoints, spool: Spool) -> None:
    """Bring the learner to the state of the last committed round; the story moves back if that is lost."""
    with contextlib.closing(journal.connect(path)) as connection:
        _remove_unknown(connection, story, checkpoints)
        try:
            _load(connection, story.epoch, story.committed, learner, checkpoints)
            return
        except CorruptCheckpoint as error:
            log.error("checkpoint_damaged", round=story.committed, reason=str(error))
        try:
            _rebuild(connection, story, learner, checkpoints, spool)
            log.warning("checkpoint_rebuilt", round=story.committed)
        except (EdgeflockError, KeyError, OSError) as error:
            log.error("checkpoint_not_rebuilt", round=story.committed, reason=str(error))
            _go_back(connection, story, learner, checkpoints)
            spool.clear()  # updates of rounds that are no more


def _load(
    connection: sqlite3.Connection, epoch: int, round: int, learner: Learner, checkpoints: Checkpoints
) -> None:
    digests = records.read_digests(connection, epoch, round)
    if digests is None:
        raise CorruptCheckpoint(f"the journal names no checkpoint of round {round}")
    learner.load(checkpoints, round, digests)


def _remove_unknown(connection: sqlite3.Connection, story: Story, checkpoints: Checkpoints) -> None:
    """Remove directories of rounds that the journal does not name: a crash came between rename and commit."""
    kept = [n for n in checkpoints.kept() if n <= story.committed]
    checkpoints.prune([n for n in kept if records.read_digests(connection, story.epoch, n) is not None])


def _rebuild(
    connection: sqlite3.Connection, story: Story, learner: Learner, checkpoints: Checkpoints, spool: Spool
) -> None:
    """Fold the kept spool of round r onto state r - 1; the result must be what the journal names."""
    number = story.committed
    if number < 1:
        raise CorruptCheckpoint("the initial model is damaged")
    wanted = records.read_digests(connection, story.epoch, number)
    _load(connection, story.epoch, number - 1, learner, checkpoints)
    counted = records.read_counted(connection, story.epoch, number)
    cohort = records.read_cohort(connection, story.epoch, number)
    round = learner.round(number, cohort, story.samples)
    layouts = learner.update_layouts(round)
    updates = {}
    for index, entry in spool.scan(number, counted).items():
        package = package_of(entry.header)
        if package is None or entry.held != package.size_bytes:
            raise CorruptCheckpoint(f"the spool of round {number} is not complete")
        updates[index] = SpooledUpdate(index, package, entry.data_path, layouts)
    learner.begin_fold(round)
    if learner.prepares:
        learner.prepare(round)
    learner.fold(counted, updates)
    learner.step(round)
    saved = learner.save(checkpoints, number)
    if wanted != (saved.model.digest, saved.state_digest):
        raise CorruptCheckpoint(f"round {number} rebuilt differs from what the journal names")


def _go_back(
    connection: sqlite3.Connection, story: Story, learner: Learner, checkpoints: Checkpoints
) -> None:
    """Take the newest round that is intact, in a new epoch; clients ahead of it will be told."""
    for number in reversed(checkpoints.kept()):
        digests = records.read_digests(connection, story.epoch, number)
        try:
            if digests is None:
                continue
            learner.load(checkpoints, number, digests)
        except CorruptCheckpoint:
            continue
        _raise_epoch(connection, story, number, digests)
        return
    raise CorruptCheckpoint(
        f"no checkpoint in {checkpoints.root} is intact: restore a backup of the run directory"
    )


def _raise_epoch(connection: sqlite3.Connection, story: Story, number: int, digests: tuple[str, str]) -> None:
    lost = story.committed
    story.epoch += 1
    story.committed, story.open_round, story.closed = number, None, None
    connection.execute("BEGIN")
    connection.execute(
        "INSERT INTO rounds (epoch, round, cohort, committed, model_digest, state_digest) "
        "VALUES (?, ?, '[]', 1, ?, ?)",
        (story.epoch, number, *digests),
    )
    records.write_meta(connection, epoch=str(story.epoch), epoch_base=str(number))
    journal.write_event(
        connection, "epoch_raised", {"epoch": story.epoch, "round": number, "lost_up_to": lost}
    )
    connection.execute("COMMIT")
    log.error("epoch_raised", epoch=story.epoch, round=number, lost_up_to=lost)
