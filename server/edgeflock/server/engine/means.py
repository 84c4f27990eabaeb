"""The means: what the engine's functions work with, made once at the start of a life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeflock.server.engine.bookkeeping import Bookkeeping
from edgeflock.server.engine.loop import Threads
from edgeflock.server.engine.scoring import Scoring
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal.journal import Journal
from edgeflock.server.learning.learner import Learner


@dataclass(frozen=True)
class Files:
    """What lies beside the rows: committed states, and updates on their way."""

    checkpoints: Checkpoints
    spool: Spool
    keep_every: int = 0  # rounds whose checkpoint stays for good; 0: none


@dataclass(frozen=True)
class Means:
    """What it takes to carry out what the machine decides.

    Who works with it tells the machine of it by the event that it returns, and holds nothing that decides.
    """

    journal: Journal
    files: Files
    learner: Learner
    bookkeeping: Bookkeeping
    scoring: Scoring
    verdicts: Verdicts
    threads: Threads
    samples: Mapping[int, int]  # n_i by seat as the journal has it now: what the machine knows of it
    cut: bool = False  # a life was cut off in the round that is open: it has counted more than it has written
