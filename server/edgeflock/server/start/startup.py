"""Before a run is served: all is checked and built, then the run directory is brought to where it is."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from edgeflock.common.command.settings_file import identity
from edgeflock.common.errors import UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.run import RunDescription
from edgeflock.common.saved import BESIDE_FILE
from edgeflock.common.scores import ACCURACY, LOSS, Metric, measures_to_text
from edgeflock.common.tasks.kit.marking import Marking
from edgeflock.methods.kit.batches import LocalData
from edgeflock.server.config import ServerConfig, takes_gates
from edgeflock.server.core import target
from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.core.effects import TestModel
from edgeflock.server.core.events import ResumedRound, Started
from edgeflock.server.costs import budget
from edgeflock.server.engine.means import Files
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.run_toml import CLOCKS, from_toml, to_toml
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal.journal import FAREWELL, Journal, consult
from edgeflock.server.journal.past import PastScores, Resumed
from edgeflock.server.learning.learner import Learner
from edgeflock.server.service.central import load_union
from edgeflock.server.start import build as assembly
from edgeflock.server.start.recovery import Asked, check_known, recover
from edgeflock.server.start.room import when_there_is_room
from edgeflock.server.start.samples import TestSet, load_test_set

log = structlog.get_logger()


@dataclass
class Built:
    """What a configuration makes, before anything is written."""

    config: ServerConfig
    test: TestSet
    learner: Learner
    flat: FlatModel
    union: LocalData | None  # of all shards, where the server itself trains, or tests on them
    marking: Marking  # by what its models are scored


@dataclass
class Parts:
    """All that a run needs before the event loop starts."""

    built: Built
    run_dir: Path
    journal: Journal
    resumed: Resumed
    files: Files
    run: RunDescription
    untested: tuple[TestModel, ...] = ()  # tests that a life before has begun


def build(config: ServerConfig) -> Built:
    """Read the data and build the model: what is wrong with them is said before a directory is made."""
    test = load_test_set(config)
    if test.numbers:
        log.info("data_read", flag="--eval-data", file=str(config.eval_data), numbers=test.numbers)
    assembly.augmentation(config, test)
    net = assembly.build_net(config, test, tell=True)
    learner, flat = assembly.build_learner(config, test, net)
    marking = assembly.build_marking(config, net, test)
    if flat.constants:
        travel = [
            spec.name for part in (flat.layouts.buffers, flat.layouts.counters) for spec in part.tensors
        ]
        log.info("buffers", travel=travel, stay=sorted(flat.constants))
    if config.target and not learner.half.has_global:
        raise UsageError(f"{config.method} has no global model that could reach a --target")
    if config.eval_devices and not learner.half.has_global:
        raise UsageError(f"{config.method} has no global model that --eval-devices could test")
    if config.eval_train and not learner.half.has_global:
        raise UsageError(f"{config.method} has no global model that --eval-train could test")
    if not flat.whole:
        frozen = flat.base.numel() - flat.own.numel()
        log.info("parts", trained=flat.params.numel(), frozen=frozen, kept_by_clients=flat.own.numel())
    union = load_union(config, net) if config.central or config.eval_train else None
    return Built(config, test, learner, flat, union, marking)


def already_over(run_dir: Path, config: ServerConfig) -> Ended | None:
    """Return how the run ended, if it has and its clients have heard it, or had their time to."""
    if not (run_dir / rundir.JOURNAL).exists():
        return None
    resumed = when_there_is_room(run_dir, lambda: consult(run_dir / rundir.JOURNAL))
    heard = FAREWELL in resumed.meta or {seat for seat, _ in resumed.seats} <= resumed.parted
    return _over(resumed, config, run_dir) if heard else None


def clear(run_dir: Path) -> None:
    """Remove what a run that is over needs no more."""
    for name in (rundir.CONTROL, rundir.CONTROL_SOCKET, rundir.GATES_SOCKET):
        rundir.remove_small(run_dir / name)
    for spool in (run_dir / "spool", *rundir.gate_spools(run_dir)):
        Spool(spool).clear()


def _over(resumed: Resumed, config: ServerConfig, run_dir: Path) -> Ended | None:
    """A completed run goes on if more rounds are asked for than before, or budgets are raised; a failed one
    is tried again."""
    ended = resumed.ended
    if ended is None or ended.kind is EndingKind.FAILED:
        return None
    more = ended.kind is EndingKind.COMPLETED and config.rounds > resumed.committed
    return None if more and asks_more(run_dir, config, resumed.measures) else ended


def asks_more(run_dir: Path, config: ServerConfig, measures: Sequence[Metric] = (ACCURACY, LOSS)) -> bool:
    """Whether more is asked of the run than when it was last taken up."""
    if not (run_dir / rundir.RUN_TOML).exists():
        return False
    before = from_toml(run_dir / rundir.RUN_TOML)
    limits = budget.parse(before.budget), budget.parse(config.budget)
    higher = target.parse(config.target, measures).raised(target.parse(before.target, measures))
    patience = 0 < before.stop_after < (config.stop_after or math.inf)
    return config.rounds > before.rounds or budget.raised(*limits) or higher or patience


def _cut_off(config: ServerConfig, resumed: Resumed, checkpoints: Checkpoints) -> tuple[TestModel, ...]:
    """Return tests of rounds before the last that have no score, as far as they can be made up for."""
    kept, tests = {*checkpoints.kept()} & {*range(resumed.newest)}, assembly.build_tests(config)
    found = (tests.known(test) for test in resumed.untested if test.round in kept)
    return tuple(test for test in found if test is not None)


def started(resumed: Resumed, scores: PastScores, untested: tuple[TestModel, ...] = ()) -> Started:
    """Return the machine's first event."""
    opened, going = resumed.open_round, None
    if opened is not None:
        going = ResumedRound(opened.round, opened.cohort, resumed.added, resumed.counted, opened.last)
    return Started(
        now=time.monotonic(),
        seats=resumed.seats,
        committed=resumed.newest,
        open=going,
        over=resumed.over,
        limit=resumed.limit,
        ended=resumed.ended if resumed.finished else None,
        conduct=resumed.conduct,
        samples=resumed.samples,
        scored=scores.newest,
        untested=untested,
        score=scores.score,
        best=scores.best,
        since=scores.since,
        paused=resumed.paused,
        stop=resumed.stop,
        dismissed=resumed.dismissed,
    )


@contextlib.contextmanager
def taken_up(built: Built, run_dir: Path) -> Iterator[Parts]:
    """Begin the run, or go back to where it is; in the end its journal is closed. The directory is locked.
    A full disk is waited out.

    Raises CorruptCheckpoint if the journal is damaged.
    """
    parts = when_there_is_room(run_dir, lambda: _take_up(built, run_dir))
    with contextlib.closing(parts.journal):
        yield parts


def _take_up(built: Built, run_dir: Path) -> Parts:
    _keep_init(built.config, run_dir / rundir.INIT)
    if not (run_dir / rundir.JOURNAL).exists():  # the file comes first: it says which run this is
        rundir.write_small(run_dir / rundir.RUN_TOML, to_toml(built.config))
    journal = Journal(run_dir / rundir.JOURNAL)
    try:
        return _parts(built, run_dir, journal)
    except BaseException:
        journal.close()
        raise


def _keep_init(config: ServerConfig, kept: Path) -> None:
    """Copy the starting weights, so that the run begins without their file after a crash."""
    if config.init is not None and not kept.exists():
        rundir.keep_file(config.init, kept)


def _require_init(config: ServerConfig, run_dir: Path) -> None:
    """Raise UsageError if a run that is to begin has lost the weights that it begins with."""
    if config.init_sha256 and config.init is None:
        raise UsageError(
            f"{run_dir / rundir.INIT}, with which this run begins, is gone: give --init FILE, whose SHA-256 "
            f"is {config.init_sha256}"
        )


def _parts(built: Built, run_dir: Path, journal: Journal) -> Parts:
    config, learner = built.config, built.learner
    asked = Asked(config.rounds, asks_more(run_dir, config, built.marking.measures))
    here, measures = _identity(built), measures_to_text(built.marking.measures)
    resumed = resume(journal, identity=json.dumps(here), measures=measures)
    there = _identity_there(resumed)
    _check_identity(there, here, run_dir)
    if here.keys() - there.keys():  # an edgeflock before knew less of it
        journal.name(identity=json.dumps(here | there)).result()
    if "measures" not in resumed.meta:  # so did not know of other metrics than accuracy
        journal.name(measures=measures).result()
    resumed.finished = _over(resumed, config, run_dir) is not None
    merge = assembly.merging(config)
    checkpoints = Checkpoints(run_dir, learner.layouts, built.flat.lasting, merge)
    spool = Spool(run_dir / "spool", not takes_gates(config), rundir.gate_spools(run_dir))
    files = Files(checkpoints, spool, config.keep_every)
    if not resumed.finished:
        journal.forget_ending().result()
    if asked.more and resumed.meta.pop("limit", None) is not None:
        journal.forget_limit().result()  # what was decided of its last round stands, but others may follow
    if journal.ask(lambda past: past.digests(0)).result() is None:
        _require_init(config, run_dir)
    begin_or_recover(resumed, journal, learner, files, asked)
    rundir.write_small(run_dir / rundir.RUN_TOML, to_toml(config))
    if learner.half.has_result:
        said = {**assembly.told_of_model(config, built.test), "run": resumed.meta["run_id"]}
        rundir.write_small(run_dir / BESIDE_FILE, json.dumps(said, indent=1) + "\n")
    run = assembly.describe_run(config, resumed.meta["run_id"], resumed.epoch, built.test, built.flat)
    untested = _cut_off(config, resumed, checkpoints)
    return Parts(built, run_dir, journal, resumed, files, run, untested)


def resume(journal: Journal, **identity: str) -> Resumed:
    """Return what the journal holds; one that is new gets the run's id, and what else makes it this run."""
    resumed = journal.ask(lambda past: past.resumed()).result()
    if "run_id" not in resumed.meta:
        made = {"run_id": secrets.token_hex(16), "epoch": "0", **identity}
        resumed.meta.update(made)
        journal.name(**made).result()
    return resumed


def begin_or_recover(
    resumed: Resumed, journal: Journal, learner: Learner, files: Files, asked: Asked
) -> None:
    """Make round 0, or bring the learner to where the journal says that the run is."""
    if journal.ask(lambda past: past.digests(0)).result() is None:
        check_known(files.checkpoints, -1)
        saved = learner.save(files.checkpoints, 0)
        journal.begin((saved.model.digest, saved.state_digest), **learner.described()).result()
    else:
        recover(resumed, journal, learner, files.checkpoints, files.spool, asked)


def _identity(built: Built) -> dict[str, str]:
    """Return the options that make the run what it is, and what they make of files that may have changed:
    those of --eval-data and of a model of the operator's own."""
    return {
        **{name: value for name, value in identity(built.config).items() if name != "set"},
        **{f"set {name}": value for name, value in built.config.set.items()},
        "shape of a sample": "x".join(map(str, built.test.input_shape)),
        "number of classes": str(built.test.classes),
        "layout of the model": built.flat.layout.digest.hex()[:8],
        **({"frozen part of the model": base.hex()[:8]} if (base := built.flat.base_digest) else {}),
    }


def _identity_there(resumed: Resumed) -> dict[str, str]:
    """Return the same as the journal has it; the clock had been an option of a method, not of runs."""
    there: dict[str, str] = json.loads(resumed.meta.get("identity", "{}"))
    known = {"clock": CLOCKS[there["set clock"]]} if there.get("set clock") in CLOCKS else {}
    return {**known, **there}


def _check_identity(there: dict[str, str], here: dict[str, str], run_dir: Path) -> None:
    """The journal knows itself which run it is of: run.toml may have been lost, or be of another one."""
    different = [
        f"{name} ({value} there, {here[name]} here)"
        for name, value in there.items()
        if here.get(name, value) != value
    ]
    if float(there.get("public_fraction", 0)) and not float(here["public_fraction"]):
        raise UsageError(
            f"{run_dir} is a run of an earlier edgeflock that cut the shards of {here['method']} otherwise: "
            "it goes on with its own run.toml alone; restore that, or give another --run-dir"
        )
    if different:
        raise UsageError(
            f"{run_dir / rundir.JOURNAL} is of another run, different in {', '.join(different)}: "
            "give its options as flags, or another --run-dir"
        )
