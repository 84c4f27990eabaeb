"""A run set in motion: its means, its engine and the door to it, made of its parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from edgeflock.common.errors import JournalBroken
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs import budget
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.ledger import Ledger
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.bookkeeping import Bookkeeping
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.intake import Intake
from edgeflock.server.engine.loop import Threads
from edgeflock.server.engine.means import Means
from edgeflock.server.engine.scoring import Scoring
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.journal.past import Past
from edgeflock.server.service.central import CentralTrainer
from edgeflock.server.service.sessions import Sessions
from edgeflock.server.service.status import status_of
from edgeflock.server.start import build
from edgeflock.server.start.cautions import cautions
from edgeflock.server.start.samples import classes_held
from edgeflock.server.start.startup import Parts, started
from edgeflock.server.start.versions import versions
from edgeflock.v1 import control_pb2 as pb

log = structlog.get_logger()


@dataclass(frozen=True)
class RunInMotion:
    """All that lives as long as the process serves the run."""

    parts: Parts
    sessions: Sessions
    engine: Engine
    intake: Intake
    central: CentralTrainer | None  # the server's own part, where the method trains on the server

    async def begin(self) -> None:
        """Go on from where the journal is."""
        self._say()
        resumed = self.parts.resumed
        here = build.tests_here(self.parts.built.config)
        newest = resumed.newest if here else resumed.newest - 1
        scores = self.parts.journal.ask(lambda past: past.scores(newest))
        known = await asyncio.wrap_future(scores)
        await self.engine.begin(started(resumed, known, self.parts.untested))
        if self.central is not None:
            self.engine.accompany(self.central.run())

    def _say(self) -> None:
        config, resumed = self.parts.built.config, self.parts.resumed
        fields = {"run_id": resumed.meta["run_id"], "round": resumed.committed, "epoch": resumed.epoch}
        if config.budget:
            fields["budget"] = config.budget
        more = {"method": config.method, "rounds": config.rounds, **versions()}
        if code := self.parts.run.code:
            more["code"] = {str(one): one.digest.hex() for one in code}
        self.parts.journal.note("run_started", **fields, **more)
        told = fields | {"method": config.method, "figure": self.parts.built.marking.measures[0].name}
        log.info("run_started", **told, run_dir=str(self.parts.run_dir))
        self._say_uncounted()
        if (found := classes_held(config)) is not None:
            told = {"held": found.held, "classes": found.classes, "reason": str(found)}
            self.parts.journal.note("classes_held", **told, missing=list(found.missing))
            log.info("classes_held", **told)

    def _say_uncounted(self) -> None:
        if words := self.parts.built.learner.uncounted:
            self.parts.journal.note("operations_not_counted", reason=words)
            log.warning("operations_not_counted", reason=words)

    def caution(self) -> None:
        """Say what somebody should hear of the settings; at every start, for they may have been others."""
        for words in cautions(self.parts.built.config):
            self.parts.journal.note("caution", reason=words)
            log.warning("caution", reason=words)

    def status(self) -> pb.StatusResponse:
        """Return where the run is, in the words of the operator's service."""
        run_id, run_dir = self.parts.resumed.meta["run_id"], str(self.parts.run_dir)
        return status_of(self.intake, self.sessions, run_id, run_dir)

    def train_no_more(self) -> None:
        """End what the server trains itself."""
        if self.central is not None:
            self.central.stop()

    async def say_farewell(self) -> None:
        """Write down that nobody is waited for any more."""
        with contextlib.suppress(JournalBroken):  # after a start they would be once more
            await asyncio.wrap_future(self.parts.journal.farewell())

    async def close(self) -> None:
        """Write what is to be written, the journal last."""
        await self.engine.close()
        await asyncio.to_thread(self.parts.journal.close)


def set_in_motion(parts: Parts) -> RunInMotion:
    """Make what serves a run; `begin` begins it."""
    traffic = TrafficBook()
    sessions, machine = Sessions(traffic), RunMachine(build.build_rules(parts.built.config))
    means = _means(parts, traffic, machine.roster.samples)
    engine = Engine(machine, means, sessions)
    names, parted = dict(parts.resumed.seats), parts.resumed.parted if parts.resumed.finished else ()
    intake = Intake(engine, [names[seat] for seat in parted])
    return RunInMotion(parts, sessions, engine, intake, _central(parts, intake, sessions))


def _central(parts: Parts, intake: Intake, sessions: Sessions) -> CentralTrainer | None:
    built = parts.built
    if not built.config.central or built.union is None:
        return None
    bench = build.build_bench(built.config, built.test)
    return CentralTrainer(intake, sessions, built.learner, bench, built.union)


def _means(parts: Parts, traffic: TrafficBook, samples: Mapping[int, int]) -> Means:
    """Make the means; their threads run from now on."""
    built, journal, newest = parts.built, parts.journal, parts.resumed.newest
    ledger, threads = Ledger(), Threads()
    time_line = ledger.time_line
    testers = build.build_testers(built.config, built.test, built.union, built.marking)
    verdicts = Verdicts(journal, newest)
    return Means(
        journal=journal,
        files=parts.files,
        learner=built.learner,
        bookkeeping=Bookkeeping(ledger, traffic, _budget(parts, verdicts), built.learner, journal),
        scoring=Scoring(testers, build.build_tests(built.config), time_line, threads, built.marking),
        verdicts=verdicts,
        threads=threads,
        samples=samples,
        cut=parts.resumed.cut,
    )


def _budget(parts: Parts, verdicts: Verdicts) -> Budget:
    """Return the limits, and what the lives before have used: of clients' last rounds more may be stated."""
    made = Budget(budget.parse(parts.built.config.budget), parts.resumed.used)
    members: dict[int, set[int]] = {}
    for seat, _ in parts.resumed.seats:
        for number, _ in verdicts.last(seat):
            members.setdefault(number, set()).add(seat)
    for number, seats in sorted(members.items()):
        stated = parts.journal.ask(partial(Past.stated, round=number)).result()
        made.recall(number, {seat: row for seat, row in stated.items() if seat in seats})
    return made
