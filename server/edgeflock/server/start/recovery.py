"""Coming back: the committed state from its checkpoint, or rebuilt, or an older one in a new epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from edgeflock.common.errors import CorruptCheckpoint, EdgeflockError, JournalBroken
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.past import Resumed
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.learner import Learner

log = structlog.get_logger()


@dataclass(frozen=True)
class Asked:
    """What is asked of the run now."""

    rounds: int
    more: bool = False  # than when it was last taken up


def recover(
    resumed: Resumed, journal: Journal, learner: Learner, checkpoints: Checkpoints, spool: Spool, asked: Asked
) -> None:
    """Bring the learner to the state of the last committed round; the run moves back if that is lost."""
    check_known(checkpoints, resumed.newest)
    if _is_unwanted(resumed, learner, asked):
        _begin_anew(journal, resumed, resumed.committed + 1, spool)
    _remove_unknown(journal, resumed, checkpoints)
    if not _restore(journal, resumed, learner, checkpoints, spool):
        number = _newest_intact(journal, learner, checkpoints)
        spool.clear()  # updates of rounds that are no more; before the epoch, which they must not enter
        checkpoints.forget_after(number)
        _raise_epoch(journal, resumed, number)
    elif resumed.open_round and not resumed.finished and _was_settled(journal, resumed.open_round.round):
        _begin_anew(journal, resumed, resumed.open_round.round, spool)


def _is_unwanted(resumed: Resumed, learner: Learner, asked: Asked) -> bool:
    """Whether what follows the last round of training is not what is asked for now: training goes on after a
    closing task, or a closing task takes the place of the round that is open."""
    if resumed.over or (resumed.open_round and resumed.open_round.last):
        return asked.more and asked.rounds > resumed.committed
    return resumed.open_round is not None and learner.closes and asked.rounds <= resumed.committed


def check_known(checkpoints: Checkpoints, committed: int) -> None:
    """Raise CorruptCheckpoint if there are rounds that the journal cannot have forgotten by a crash.

    Only the round after the last committed one may be there, between its rename and its transaction;
    nothing is committed in a new journal, which is -1 here.
    """
    newest = max(checkpoints.kept(), default=0)
    if newest > committed + 1:
        knows = f"no round after {committed}" if committed >= 0 else "no round"
        raise CorruptCheckpoint(
            f"{checkpoints.root} holds round {newest}, but the journal knows {knows}: "
            "it is damaged or too old, restore a backup of the run directory"
        )


def _was_settled(journal: Journal, round: int) -> bool:
    return journal.ask(lambda past: past.is_settled(round)).result()


def _digests(journal: Journal, round: int) -> tuple[str, str] | None:
    return journal.ask(lambda past: past.digests(round)).result()


def _begin_anew(journal: Journal, resumed: Resumed, round: int, spool: Spool) -> None:
    """The run ended in the midst of a round and goes on: its members were told that their updates do not
    count, and dropped them. That word stays; the round is held again, in a new epoch.

    So it is with a round whose number another one takes."""
    log.warning("round_begins_anew", round=round)
    spool.forget(round)
    _raise_epoch(journal, resumed, resumed.committed)


def _restore(
    journal: Journal, resumed: Resumed, learner: Learner, checkpoints: Checkpoints, spool: Spool
) -> bool:
    """Load the last committed round, or rebuild it; return whether that was possible.

    Raises OSError where files cannot be read or written now: nothing is known to be damaged by that.
    """
    try:
        _load(journal, resumed.newest, learner, checkpoints)
        return True
    except CorruptCheckpoint as error:
        log.error("checkpoint_damaged", round=resumed.newest, reason=str(error))
    try:
        _rebuild(journal, resumed, learner, checkpoints, spool)
        log.warning("checkpoint_rebuilt", round=resumed.newest)
        return True
    except JournalBroken:
        raise
    except (
        EdgeflockError,
        KeyError,
        FileNotFoundError,
    ) as error:  # what the system refuses now is no reason to go back
        log.error("checkpoint_not_rebuilt", round=resumed.newest, reason=str(error))
    return False


def _load(journal: Journal, round: int, learner: Learner, checkpoints: Checkpoints) -> None:
    digests = _digests(journal, round)
    if digests is None:
        raise CorruptCheckpoint(f"the journal names no checkpoint of round {round}")
    learner.load(checkpoints, round, digests)


def _remove_unknown(journal: Journal, resumed: Resumed, checkpoints: Checkpoints) -> None:
    """Remove directories of rounds that the journal does not name: a crash came between rename and commit."""
    kept = [n for n in checkpoints.kept() if n <= resumed.newest]
    if len(kept) < len(checkpoints.kept()):
        log.warning("round_not_committed", round=resumed.newest + 1, reason="the journal does not name it")
    checkpoints.prune([n for n in kept if _digests(journal, n) is not None])


def _rebuild(
    journal: Journal, resumed: Resumed, learner: Learner, checkpoints: Checkpoints, spool: Spool
) -> None:
    """Fold the kept spool of round r onto state r - 1; the result must be what the journal names."""
    number = resumed.newest
    if number < 1:
        raise CorruptCheckpoint("the initial model is damaged")
    wanted = _digests(journal, number)
    _load(journal, number - 1, learner, checkpoints)
    past = journal.ask(lambda past: past.round(number)).result()
    round = learner.round(number, past.cohort, past.roster, closing=bool(resumed.over))
    layouts = learner.update_layouts(round)
    updates = {}
    for seat, entry in spool.scan(number, past.counted).items():
        found = entry.description(number)
        if found is None or entry.held != found.package.size_bytes:
            raise CorruptCheckpoint(f"the spool of round {number} is not complete")
        updates[seat] = SpooledUpdate(seat, found.package, entry.data_path, layouts)
    learner.begin_fold(round)
    learner.prepare(round)
    learner.fold(past.counted, updates)
    learner.step(replace(round, costs=past.measured))
    saved = learner.save(checkpoints, number)
    if wanted != (saved.model.digest, saved.state_digest):
        raise CorruptCheckpoint(f"round {number} rebuilt differs from what the journal names")


def _newest_intact(journal: Journal, learner: Learner, checkpoints: Checkpoints) -> int:
    """Load the newest round that is intact and return its number."""
    for number in reversed(checkpoints.kept()):
        digests = _digests(journal, number)
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


def _raise_epoch(journal: Journal, resumed: Resumed, number: int) -> None:
    """Go on from that round in a new epoch; clients ahead of it will be told."""
    lost = resumed.newest
    journal.raise_epoch(number, lost).result()
    resumed.epoch, resumed.committed, resumed.over = journal.epoch, number, ""
    resumed.open_round, resumed.added, resumed.counted = None, None, None
    log.error("epoch_raised", epoch=resumed.epoch, round=number, lost_up_to=lost)
