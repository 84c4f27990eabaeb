"""The open round: its work, where its updates go, what is complete and what was stated; written only here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import Package
from edgeflock.common.scores import ClientScore
from edgeflock.common.verdict import Verdict
from edgeflock.server.core.decisions import Outcome
from edgeflock.server.costs.budget import STATED, Budget, credible
from edgeflock.server.costs.rows import Row, raised
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.files.spool import Arrival, SpoolEntry
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.work import RoundWork

T = TypeVar("T")
AHEAD = 32  # parts in which a large cohort is folded while its updates come


class OnDemand(Generic[T]):
    """What is made for a member when it is first asked for, once: who asks meanwhile waits for the same."""

    def __init__(self) -> None:
        self._of: dict[int, asyncio.Future[T]] = {}

    async def get(self, seat: int, make: Callable[[], Awaitable[T]]) -> T:
        if seat not in self._of:
            made = self._of[seat] = asyncio.ensure_future(make())
            made.add_done_callback(partial(self._drop_failed, seat))
        return await asyncio.shield(self._of[seat])  # others may wait for it when one has gone

    def forget(self, seat: int) -> None:
        """Let go of it; who asks again gets another."""
        self._of.pop(seat, None)

    def _drop_failed(self, seat: int, made: asyncio.Future[T]) -> None:
        """Who asks again after a full disk shall not get the old failure."""
        if not made.cancelled() and made.exception() and self._of.get(seat) is made:
            del self._of[seat]


@dataclass
class OpenRound:
    """One open round."""

    work: RoundWork
    entries: dict[int, SpoolEntry]  # by seat
    began: float  # when it was decided to open it
    updates: dict[int, SpooledUpdate] = field(default_factory=dict)  # complete and checked
    costs: dict[int, Row] = field(default_factory=dict)  # as the clients stated them
    scores: dict[int, tuple[ClientScore, ...]] = field(default_factory=dict)  # as the clients tell them
    moved: dict[int, bool | None] = field(default_factory=dict)  # whether clients' own states moved
    _came: dict[int, float] = field(default_factory=dict)  # when it was complete, by seat
    _held_up: dict[int, float] = field(default_factory=dict)  # by tests of clients' own models, by seat
    _busy: dict[int, float] = field(default_factory=dict)  # seconds of training in its process, by seat
    used_up: str = ""  # a resource of which a client had too little for all its steps
    preparing: asyncio.Future[bool] | None = None  # S0, which the fold waits for
    _told: dict[str, float] | None = None  # what the method was told when it moved the state
    _folding_ahead: bool = False
    _ahead_from: int = 0  # updates with which there is something to fold
    _personal: OnDemand[Broadcast] = field(default_factory=OnDemand[Broadcast])
    _added: OnDemand[SpoolEntry] = field(
        default_factory=OnDemand[SpoolEntry]
    )  # to the entries, by an extension

    @property
    def number(self) -> int:
        return self.work.round.number

    # ------------------------------------------------------------------------------- opening

    def restore(self) -> None:
        """Take the updates that a previous process had received."""
        for seat, entry in self.entries.items():
            described = entry.description(self.number)
            if described is not None and self.begat(described) and entry.whole(self.number):
                self.complete(seat, described)

    def allow(self, budget: Budget, used: Mapping[str, float], *, spare: int) -> None:
        """Share what is left of the budgets among those who will train; so many may still come."""
        trainers = len(self.entries) - len(self.updates) + spare
        self.work = replace(self.work, allowances=budget.allowances(used, trainers))

    def prepare(self, state: Awaitable[bool]) -> None:
        """Begin what the server trains itself in this round: S0."""
        self.preparing = asyncio.ensure_future(state)

    # ------------------------------------------------------------------------------- member by member

    async def personal(self, seat: int, make: Callable[[], Awaitable[Broadcast]]) -> Broadcast:
        """Return one member's package, formed when it is first asked for."""
        return await self._personal.get(seat, make)

    async def entry(self, seat: int, make: Callable[[], Awaitable[SpoolEntry]]) -> SpoolEntry:
        """Return where a member's update goes; made now if the round was extended by it."""
        if seat not in self.entries:
            made = await self._added.get(seat, make)
            self.entries.setdefault(seat, made)
        return self.entries[seat]

    def state(
        self, seat: int, costs: Row, used_up: str = "", held_up_s: float = 0.0, busy_s: float = 0.0
    ) -> None:
        """A member states what its update took, before the bytes come, and what it had too little of.

        Tests of clients' own models have held it up so long; its process has trained so long, it or others.
        """
        self.costs[seat] = raised(self.costs.get(seat, {}), costs)
        self._held_up[seat], self._busy[seat] = held_up_s, busy_s
        if used_up in self.work.allowances:
            self.used_up = used_up

    def correct(self, seat: int, costs: Row) -> None:
        """A member states more of what it took: the books of a discarded round are written again."""
        self.costs[seat] = raised(self.costs.get(seat, {}), costs)

    def complete(self, seat: int, described: Description) -> None:
        """An update is in the spool, whole and checked."""
        entry = self.entries[seat]
        entry.finish()
        self._came[seat] = time.monotonic()
        self.updates[seat] = SpooledUpdate(seat, described.package, entry.data_path, self.work.layouts)
        self.scores[seat] = described.scores
        self.moved[seat] = described.moved
        self._personal.forget(seat)  # its file is closed; who asks again gets the same once more

    def described(self, seat: int) -> Package | None:
        """Return what the spool holds of a member, whole or not."""
        described = self.entries[seat].description(self.number)
        return described.package if described else None

    def begat(self, described: Description) -> bool:
        """Whether an update can have been made from what this round sends: one of another history was not."""
        return described.made_from in (b"", self.work.shared.package.digest)

    def marked(self, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
        """Return outcomes with what was said of the clients' own states."""
        return tuple(
            replace(one, moved=self.moved.get(one.seat)) if one.verdict is Verdict.COUNTED else one
            for one in outcomes
        )

    def begin_ahead(self) -> bool:
        """Whether to begin folding what is here, ahead of the rest; once at a time, until `end_ahead`, and
        each time a part of the whole: a thread that is woken for one small update costs more than its sum."""
        if self._folding_ahead or len(self.updates) < self._ahead_from:
            return False
        self._folding_ahead = True
        self._ahead_from = len(self.updates) + max(1, len(self.entries) // AHEAD)
        return True

    def end_ahead(self) -> None:
        self._folding_ahead = False

    # ------------------------------------------------------------------------------- when it is over

    def exam_s(self) -> float:
        """Return how much sooner the last update would have come without tests of clients' own models."""
        return saved(self._came, self._held_up, self.began)

    def lost(self) -> dict[int, dict[str, float | int | None]]:
        """Return what everybody has stated by now, of a round that is discarded."""
        columns = STATED.values()
        stated = {seat: self.costs.get(seat, {}) for seat in self.entries}
        return {seat: {name: row.get(name) for name in columns} for seat, row in stated.items()}

    def measured(self, round_s: float) -> dict[str, float]:
        """What the method may steer by: seconds of the round so far, and in which the slowest client trained,
        or the process that trained several in turns; CPU seconds and joules of all clients' training."""
        training = [
            max(credible(cost.get("train_s")), self._busy.get(seat, 0.0)) for seat, cost in self.costs.items()
        ]
        return {
            "round_s": round_s,
            "train_s": max(training, default=0.0),
            "train_cpu_s": sum(credible(cost.get("cpu_s")) for cost in self.costs.values()),
            "train_energy_j": sum(credible(cost.get("energy_j")) for cost in self.costs.values()),
        }

    def told(self, costs: dict[str, float]) -> dict[str, float]:
        """Return what the method is told with the sums: these, or what it was told in a commit that found no
        room, for with that the new state was computed."""
        if self._told is None:
            self._told = costs
        return self._told

    def close(self) -> list[Arrival]:
        """Take no more bytes; return what has open files, which a thread is to release."""
        for entry in self.entries.values():
            entry.retire()
        return [entry.arrival for entry in self.entries.values() if entry.arrival.unreleased]


def saved(came: Mapping[int, float], held_up: Mapping[int, float], began: float) -> float:
    """Return how much sooner the last of some would have come, had nothing held up any of them."""
    without = [at - held_up.get(seat, 0.0) for seat, at in came.items()]
    return max(0.0, max(came.values(), default=began) - max(began, *without, began))
