"""A run of many clients at rest, as a server leaves it that was told to go away: made without any process.

Everything is written through the journal's own face and the files of the run directory.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeflock.common.scores import Score, summarise
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Ended, EndingKind, Outcome, RoundOpened, Samples, Scored, Seated
from edgeflock.server.core.effects import Announce, CommitRound
from edgeflock.server.core.testing import evaluated
from edgeflock.server.costs.budget import Spent
from edgeflock.server.costs.rows import Costs, LateCosts, RoundRows, Row
from edgeflock.server.engine.committing import canonical_line
from edgeflock.server.journal.journal import Commit, Journal
from edgeflock.server.start import startup
from edgeflock.server.start.resolve import combine
from edgeflock.server.start.startup import Parts

CLASSES = 10
_MACHINES = ("aarch64", "aarch64", "aarch64", "x86_64")
_SYSTEMS = ("Linux 6.6.31", "Linux 6.12.20", "Linux 6.1.0")
_SOFTWARE = ("1.0.0", "1.0.0", "1.0.0", "0.9.0")


@dataclass(frozen=True)
class LargeRun:
    """How many take part, and what becomes of them."""

    clients: int = 10_000
    cohort: int = 500
    rounds: int = 20
    ended: bool = True
    seed: int = 1


def large_run(folder: Path, plan: LargeRun = LargeRun()) -> Path:
    """Write such a run below a folder and return its directory."""
    draw = np.random.default_rng(plan.seed)
    folder.mkdir(parents=True, exist_ok=True)
    test = folder / "test.npz"
    np.savez(test, x=draw.normal(size=(200, 8)).astype("float32"), y=np.arange(200) % CLASSES)
    given = {
        "run_dir": folder / "run", "clients": plan.clients, "cohort": plan.cohort, "model": "linear",
        "rounds": plan.rounds if plan.ended else plan.rounds + 10, "eval_data": test,
    }  # fmt: skip
    (folder / "run").mkdir()
    built = startup.build(combine(given))
    with startup.taken_up(built, folder / "run") as parts:
        _Writer(parts, plan).write()
    return folder / "run"


class _Writer:
    """Writes one run, round by round."""

    def __init__(self, parts: Parts, plan: LargeRun) -> None:
        self._parts, self._plan, self._random = parts, plan, random.Random(plan.seed)
        self._journal: Journal = parts.journal
        self._names = {seat: f"c{seat}" for seat in range(plan.clients)}
        self._slow = {seat: self._random.lognormvariate(0.0, 0.7) for seat in self._names}

    def write(self) -> None:
        plan = self._plan
        self._gather()
        cohort = self._cohort()
        self._journal.decide([RoundOpened(1, cohort)]).result()
        for number in range(1, plan.rounds + 1):
            following = self._cohort()
            self._commit(number, cohort, following if number < plan.rounds or not plan.ended else None)
            cohort = following
        if plan.ended:
            self._end()
        else:
            self._opened(plan.rounds + 1, cohort)

    def _gather(self) -> None:
        self._journal.note("run_started", method="fedavg", round=0, rounds=self._plan.rounds)
        for name in self._names.values():
            self._journal.note("client_joined", client=name, **self._device())
        said = [Announce("clients_seated", {"clients": [*self._names.values()]}, written=True)]
        self._journal.decide([Seated(tuple(self._names.items()))], said).result()
        samples = {seat: self._random.randint(20, 400) for seat in self._names}
        self._journal.decide([Samples(seat, held) for seat, held in samples.items()]).result()
        for seat, held in samples.items():
            few = self._random.sample(range(CLASSES), 2)
            classes = [held // 2 if number in few else 0 for number in range(CLASSES)]
            name = self._names[seat]
            self._journal.note("client_ready", client=name, seat=seat, samples=held, classes=classes)

    def _device(self) -> dict[str, object]:
        choose = self._random.choice
        return {
            "machine": choose(_MACHINES), "system": choose(_SYSTEMS), "cores": choose((2, 4)),
            "memory_bytes": choose((1, 2, 4)) << 30, "compute": "cpu", "python": "3.11.2",
            "torch": choose(("2.9.1", "2.13.0")), "software": choose(_SOFTWARE),
        }  # fmt: skip

    def _cohort(self) -> tuple[int, ...]:
        return tuple(sorted(self._random.sample(range(self._plan.clients), self._plan.cohort)))

    def _opened(self, number: int, cohort: tuple[int, ...]) -> None:
        self._journal.note("round_opened", round=number, cohort=[self._names[seat] for seat in cohort])

    def _commit(self, number: int, cohort: tuple[int, ...], following: tuple[int, ...] | None) -> None:
        self._opened(number, cohort)
        learner, files = self._parts.built.learner, self._parts.files
        saved = learner.save(files.checkpoints, number)
        files.checkpoints.prune({0, number, number - 1}, upto=number)
        outcomes = tuple(Outcome(seat, b"\0" * 32, self._verdict(), True) for seat in cohort)
        opened = None if following is None else RoundOpened(number + 1, following)
        effect = CommitRound(number, outcomes, opened)
        rows = {seat: self._costs(seat) for seat in cohort}
        seconds = {"select_s": 0.1, "open_s": 9.0, "fold_s": 0.4, "commit_s": 0.5}
        metrics = {"loss": 2.0 / number, "norm_ratio": 1.0}
        scores = {seat: {"client_local": self._score(number)} for seat in cohort}
        bundles = {
            seat: {("down", "model", "identity"): 9000, ("up", "delta", "identity"): 9000} for seat in cohort
        }
        self._journal.commit(
            Commit(
                round=number,
                digests=(saved.model.digest, saved.state_digest),
                outcomes=outcomes,
                next=opened,
                values=metrics,
                measured={},
                costs=Costs(
                    LateCosts(seconds={number: seconds}),
                    RoundRows(number, rows, bundles, rows),
                    Spent({"bytes": 18000.0 * number, "time": 10.0 * number}, {}, {}),
                ),
                evaluations={"client_local": summarise([one["client_local"] for one in scores.values()])},
                scores=scores,
                announcements=(
                    Announce("round_committed", canonical_line(self._names, effect, metrics, seconds, rows)),
                ),
            )
        ).result()
        found = summarise([Score(1 - 1 / (1 + number), 2.0 / number, 200)])
        self._journal.decide(
            [Scored(number, (("global", found),))], [evaluated(number, "global", found)]
        ).result()

    def _verdict(self) -> Verdict:
        return self._random.choices((Verdict.COUNTED, Verdict.LATE, Verdict.DISCARDED), (90, 6, 4))[0]

    def _score(self, number: int) -> Score:
        return Score(min(1.0, max(0.0, self._random.gauss(1 - 1 / (1 + number), 0.1))), 1.0 / number, 20)

    def _costs(self, seat: int) -> Row:
        train = self._slow[seat] * self._random.uniform(0.9, 1.1)
        return {
            "samples": 100, "steps": 10, "samples_done": 100, "fetch_s": 0.2, "train_s": train,
            "deliver_s": 0.3, "wait_s": max(0.0, 9 - train), "cpu_s": train,
            "peak_rss_bytes": 250_000_000 + 1000 * seat, "bytes_down": 9000, "bytes_up": 9000,
            "resent_bytes": 0, "flops": 1e9,
            "temperature_c": 40.0 + 30.0 * self._random.random(), "energy_j": 3.0 * train, "energy_source": 3,
        }  # fmt: skip

    def _end(self) -> None:
        rounds = self._plan.rounds
        reason = f"all {rounds} rounds are done"
        said = [Announce("run_ended", {"kind": "completed", "reason": reason, "round": rounds}, written=True)]
        self._journal.decide([Ended(EndingKind.COMPLETED, reason, rounds + 1)], said).result()
        self._journal.farewell().result()
        learner = self._parts.built.learner
        self._parts.files.checkpoints.write_result(learner.state, learner.state.model)
