"""The means of a run: made of its parts, and of what the journal knows of the lives before."""

from __future__ import annotations

from edgeflock.server.costs import budget, target
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.ledger import Ledger
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.bookkeeping import Bookkeeping
from edgeflock.server.engine.loop import Threads
from edgeflock.server.engine.means import Files, Means
from edgeflock.server.engine.scoring import Scoring, Tests
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.start import build
from edgeflock.server.start.startup import Parts


def make(parts: Parts, traffic: TrafficBook) -> Means:
    """Make the means; its threads run from now on."""
    config, journal, ledger, threads = parts.config, parts.journal, Ledger(), Threads()
    tests = Tests(
        config.eval_every,
        config.rounds,
        blocking=config.eval_blocking,
        clients=build.client_tests(config),
        target=target.parse(config.target),
    )
    evaluator = build.build_evaluator(config, parts.test)
    return Means(
        journal=journal,
        files=Files(parts.checkpoints, parts.spool, config.keep_every),
        learner=parts.learner,
        bookkeeping=Bookkeeping(ledger, traffic, _budget(parts), parts.learner, journal),
        scoring=Scoring(evaluator, tests, parts.scored, journal=journal, line=ledger.line, threads=threads),
        verdicts=Verdicts(parts.outcomes, journal),
        threads=threads,
        samples=dict(parts.resumed.samples),
    )


def _budget(parts: Parts) -> Budget:
    """Return the limits, and what the lives before have used."""
    return Budget(budget.parse(parts.config.budget), parts.resumed.used)
