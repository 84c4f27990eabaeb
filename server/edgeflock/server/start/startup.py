"""Before a run is served: all is checked and built, then the run directory is brought to where it is."""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from edgeflock.common.command.settings_file import identity
from edgeflock.common.errors import UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.methods.kit.batches import LocalData
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.core.events import ResumedRound, Started
from edgeflock.server.costs import budget, target
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.run_toml import from_toml, to_toml
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal import decisions as records
from edgeflock.server.journal.decisions import Story, read_story
from edgeflock.server.journal.journal import connect, verify
from edgeflock.server.learning.learner import Learner
from edgeflock.server.service.central import load_union
from edgeflock.server.start import build as assembly
from edgeflock.server.start.recovery import Asked, check_known, recover
from edgeflock.v1 import aggregator_pb2 as pb


@dataclass
class Built:
    """What a configuration makes, before anything is written."""

    config: ServerConfig
    test: assembly.TestSet
    learner: Learner
    flat: FlatModel
    union: LocalData | None  # of all shards, where the server itself trains


@dataclass
class Parts:
    """All that a run needs before the event loop starts."""

    config: ServerConfig
    run_dir: Path
    story: Story
    test: assembly.TestSet
    learner: Learner
    checkpoints: Checkpoints
    spool: Spool
    run: pb.Run
    union: LocalData | None = None


def build(config: ServerConfig) -> Built:
    """Read the data and build the model: what is wrong with them is said before a directory is made."""
    test = assembly.load_test_set(config)
    learner, flat = assembly.build_learner(config, test)
    if config.target and not learner.half.has_global:
        raise UsageError(f"{config.method} has no global model that could reach a --target")
    return Built(config, test, learner, flat, load_union(config) if config.central else None)


def already_over(run_dir: Path, config: ServerConfig) -> Ended | None:
    """Return how the run ended, if it has and its clients have had their time to hear it."""
    path = run_dir / rundir.JOURNAL
    if not path.exists():
        return None
    with contextlib.closing(connect(path)) as connection:
        verify(connection, path)
        story = read_story(connection)
    return _over(story, config, run_dir) if rundir.FAREWELL in story.meta else None


def _over(story: Story, config: ServerConfig, run_dir: Path) -> Ended | None:
    """A completed run goes on if more rounds are asked for than before, or budgets are raised; a failed one
    is tried again."""
    ended = story.ended
    if ended is None or ended.kind is EndingKind.FAILED:
        return None
    more = ended.kind is EndingKind.COMPLETED and config.rounds > story.committed
    return None if more and asks_more(run_dir, config) else ended


def asks_more(run_dir: Path, config: ServerConfig) -> bool:
    """Whether more is asked of the run than when it was last taken up."""
    if not (run_dir / rundir.RUN_TOML).exists():
        return False
    before = from_toml(run_dir / rundir.RUN_TOML)
    limits = budget.parse(before.budget), budget.parse(config.budget)
    higher = target.parse(config.target).raised(target.parse(before.target))
    return config.rounds > before.rounds or budget.raised(*limits) or higher


def started(story: Story, now: float, reached: str = "") -> Started:
    """Return the round machine's first event."""
    opened, going = story.open_round, None
    if opened is not None:
        going = ResumedRound(opened.round, opened.cohort, story.added, story.closed, opened.last)
    ended = story.ended if story.finished else None
    known = story.seats, story.newest, going, story.over, story.limit
    return Started(now, *known, reached, ended, story.conduct)


def take_up(built: Built, run_dir: Path) -> Parts:
    """Begin the run, or go back to where it is. The directory is locked."""
    config, learner = built.config, built.learner
    asked = Asked(config.rounds, asks_more(run_dir, config))
    if not (run_dir / rundir.JOURNAL).exists():  # the file comes first: it says which run this is
        rundir.write_small(run_dir / rundir.RUN_TOML, to_toml(config))
    here = _identity(built)
    story = tell(run_dir, identity=json.dumps(here))
    _check_identity(story, here, run_dir)
    story.finished = _over(story, config, run_dir) is not None
    checkpoints, spool = Checkpoints(run_dir, learner.layouts), Spool(run_dir / "spool")
    path = run_dir / rundir.JOURNAL
    if not story.finished:
        _forget_ending(path)
    if asked.more:
        _forget_limit(path, story)
    begin_or_recover(story, path, learner, checkpoints, spool, asked)
    rundir.write_small(run_dir / rundir.RUN_TOML, to_toml(config))
    described = assembly.describe_run(config, story.meta["run_id"], story.epoch, built.test, built.flat)
    return Parts(config, run_dir, story, built.test, learner, checkpoints, spool, described, built.union)


def tell(run_dir: Path, **identity: str) -> Story:
    """Return what the journal holds; one that is new gets the run's id, and what else makes it this run.

    Raises CorruptCheckpoint if it is damaged.
    """
    path = run_dir / rundir.JOURNAL
    with contextlib.closing(connect(path)) as connection:
        verify(connection, path)
        story = read_story(connection)
        if "run_id" not in story.meta:
            made = {"run_id": secrets.token_hex(16), "epoch": "0", **identity}
            story.meta.update(made)
            with connection:
                connection.execute("BEGIN")
                records.write_meta(connection, **made)
                connection.execute("COMMIT")
        return story


def begin_or_recover(
    story: Story, path: Path, learner: Learner, checkpoints: Checkpoints, spool: Spool, asked: Asked
) -> None:
    """Make round 0, or bring the learner to where the journal says that the run is."""
    if _is_new(path):
        _initialise(path, learner, checkpoints)
    else:
        recover(story, path, learner, checkpoints, spool, asked)


def _identity(built: Built) -> dict[str, str]:
    """Return the options that make the run what it is, and what they make of files that may have changed:
    those of --eval-data and of a model of the operator's own."""
    return {
        **identity(built.config),
        "shape of a sample": "x".join(map(str, built.test.input_shape)),
        "number of classes": str(built.test.classes),
        "layout of the model": built.flat.layout.digest.hex()[:8],
    }


def _check_identity(story: Story, here: dict[str, str], run_dir: Path) -> None:
    """The journal knows itself which run it is of: run.toml may have been lost, or be of another one."""
    there: dict[str, str] = json.loads(story.meta["identity"])
    different = [
        f"{name} ({value} there, {here[name]} here)"
        for name, value in there.items()
        if here.get(name, value) != value
    ]
    if different:
        raise UsageError(
            f"{run_dir / rundir.JOURNAL} is of another run, different in {', '.join(different)}: "
            "give its options as flags, or another --run-dir"
        )


def _forget_ending(path: Path) -> None:
    """An ending of before no longer holds."""
    with contextlib.closing(connect(path)) as connection:
        connection.execute("DELETE FROM meta WHERE name LIKE 'ended_%' OR name = ?", (rundir.FAREWELL,))


def _forget_limit(path: Path, story: Story) -> None:
    """More is asked of the run now: what was decided of its last round stands, but others may follow."""
    if story.meta.pop("limit", None) is not None:
        with contextlib.closing(connect(path)) as connection:
            connection.execute("DELETE FROM meta WHERE name = 'limit'")


def _is_new(path: Path) -> bool:
    """Whether round 0 is still to be made."""
    with contextlib.closing(connect(path)) as connection:
        return records.read_digests(connection, 0, 0) is None


def _initialise(path: Path, learner: Learner, checkpoints: Checkpoints) -> None:
    check_known(checkpoints, -1)
    saved = learner.save(checkpoints, 0)
    with contextlib.closing(connect(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO rounds (epoch, round, cohort) VALUES (0, 0, '[]')")
        records.write_commit(connection, 0, 0, saved.model.digest, saved.state_digest)
        records.write_meta(connection, **learner.described())
        connection.execute("COMMIT")
