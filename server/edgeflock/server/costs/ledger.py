"""The ledger: what a run costs, from counters of the open round to the rows that the journal gets. Pure."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgeflock.common.payload.package import Package
from edgeflock.server.costs.rows import Bundles, LateCosts, RoundRows, Row, raised
from edgeflock.server.costs.time_line import RoundTimes
from edgeflock.server.costs.traffic import Traffic

Kept = Mapping[int, tuple[Row, Bundles]]  # by seat: the row and the bytes by bundle


@dataclass(frozen=True)
class MemberCosts:
    """What is known of one member of the open round."""

    traffic: Traffic
    reported: Row = field(default_factory=dict)
    package: Package | None = None  # of its update, once that is complete
    operations: Row = field(default_factory=dict)  # that its passes and steps took

    def row(self, counted: Mapping[str, int]) -> Row:
        """Return what was counted, what the client stated, and what follows from its update: bytes that came
        twice, operations."""
        if self.package is None:
            return {**self.reported, **counted, "resent_bytes": 0, **self.operations}
        held, steps = (int(self.package.scalars[name]) for name in ("samples", "steps"))
        resent = max(0, counted["bytes_up"] - self.package.size_bytes)
        said = {"samples": held, "steps": steps, **self.reported}
        return {**said, **counted, "resent_bytes": resent, **self.operations}


class Ledger:
    """Every number comes here first. Nothing is forgotten before a transaction holds it."""

    def __init__(self) -> None:
        self.time_line = RoundTimes()
        self._late: dict[tuple[int, int], Row] = {}
        self._kept: Kept = {}  # of the open round, written by the lives before
        self._cut = False  # the life before has not written all that it has counted of the open round
        self._closed: RoundRows | None = None  # of the round that is being committed, or was

    # ------------------------------------------------------------------------------- the round's rows

    def resume(self, kept: Kept, *, cut: bool = False) -> None:
        """Go on with the rows of a round that a life before has left open; one that was cut off has counted
        more bytes than it has written."""
        self._kept, self._cut = kept, cut

    def rows(self, round: int, members: Mapping[int, MemberCosts]) -> RoundRows:
        """Return the rows of the open round as they are now; members by seat."""
        rows: dict[int, Row] = {}
        bundles: dict[int, Bundles] = {}
        fresh: dict[int, Row] = {}
        for seat, member in members.items():
            counted = member.traffic.counted()
            rows[seat] = fresh[seat] = member.row(counted)
            bundles[seat] = dict(member.traffic.bundles)
            if seat in self._kept:
                kept, before = self._kept[seat]
                whole = {name: amount + int(kept.get(name) or 0) for name, amount in counted.items()}
                rows[seat] = member.row(whole)
                fresh[seat] = {**rows[seat], **counted}
                bundles[seat] = Counter(before) + member.traffic.bundles
            if self._cut or self._kept.get(seat, ({}, {}))[0].get("at_least"):
                rows[seat] = {**rows[seat], "at_least": 1}
        return RoundRows(round, rows, bundles, fresh)

    def close(self, round: int, members: Mapping[int, MemberCosts]) -> tuple[RoundRows, bool]:
        """Return the final rows of a round, and whether this is the first time: a full disk may ask again."""
        if self._closed is not None and self._closed.round == round:
            return self._closed, False
        self._closed = self.rows(round, members)
        for member in members.values():
            member.traffic.forget()
        self._kept, self._cut = {}, False
        return self._closed, True

    def after(self, traffic: Mapping[int, Traffic]) -> RoundRows | None:
        """Return the rows of the round that was closed last with what has come since, where anything has."""
        if self._closed is None or not traffic:
            return None
        rows, bundles = {}, {}
        for seat, more in traffic.items():
            before = self._closed.rows.get(seat, {})
            rows[seat] = {
                name: amount + int(before.get(name) or 0) for name, amount in more.counted().items()
            }
            bundles[seat] = Counter(self._closed.bundles.get(seat, {})) + more.bundles
        return RoundRows(self._closed.round, rows, bundles, rows)

    def has_closed(self, round: int) -> bool:
        """Whether the rows of a round are final: its commit writes them, or has."""
        return self._closed is not None and self._closed.round == round

    # ------------------------------------------------------------------------------- what comes later

    def add_late(self, round: int, seat: int, row: Row) -> None:
        """Take what a client reports of a round that is over."""
        self._late[round, seat] = raised(self._late.get((round, seat), {}), row)

    @property
    def has_late(self) -> bool:
        """Whether there are late reports that no transaction holds."""
        return bool(self._late)

    @contextlib.contextmanager
    def writing(self) -> Iterator[LateCosts]:
        """Hand out what is due; if the transaction within fails, it stays due."""
        self.time_line.now()
        pending = LateCosts(dict(self._late), self.time_line.take())
        try:
            yield pending
        except BaseException:
            self.time_line.give_back(pending.seconds)
            raise
        self._late = {key: row for key, row in self._late.items() if pending.late.get(key) is not row}
