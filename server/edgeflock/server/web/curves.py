"""The numbers of committed rounds as they are drawn, and which of them a viewer does not have yet.

The newest rounds are there one by one, of the older ones as many as a picture has room for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgeflock.common.scores import ACCURACY, Metric

Value = float | int | None

_LARGE = 1e5  # moments are
_NOT_DRAWN = {"round", "budget"}
_NEWEST = 256  # rounds that are kept one by one
_OLDER = 512  # rows of all before them: more than a screen has columns
_MOST = 1024  # rows before some are left out
_SKIPPED = "skipped "
_ADDED = ("bytes_up", "bytes_down", "seconds")  # a row says what those left out before it had


class Curves:
    """Rows by round; every change gives a row the next revision."""

    def __init__(self) -> None:
        self.revision = 0
        self.cut = 0  # how often rounds were taken back
        self.stride = 1  # of the older rounds one in so many is there
        self._thinned = 0  # the revision at which rows were left out
        self._rows: dict[int, dict[str, Value]] = {}  # Invariant: in the order of their revisions
        self._revisions: dict[int, int] = {}
        self._records: list[tuple[int, float]] = []  # rounds that were better than all before them

    def put(self, round: int, values: Mapping[str, Any]) -> None:
        """Add values to a round."""
        row = self._rows.pop(round, {"round": round})
        row.update({name: _known(value) for name, value in values.items() if _is_drawn(name, value)})
        self.revision += 1
        self._rows[round], self._revisions[round] = row, self.revision

    def score(self, round: int, value: float, figure: Metric = ACCURACY) -> None:
        """Remember a test of the model that the run is about."""
        if not self._records or figure.better(value, self._records[-1][1]):
            self._records.append((round, value))

    def best(self) -> tuple[float, int] | None:
        """Return the best value of the rounds that stand, and its round."""
        return (self._records[-1][1], self._records[-1][0]) if self._records else None

    def cut_after(self, round: int) -> None:
        """Take back what came after a round: the run goes on from there."""
        for number in [number for number in self._rows if number > round]:
            del self._rows[number], self._revisions[number]
        self._records = [record for record in self._records if record[0] <= round]
        self.cut += 1

    def thin(self) -> None:
        """Leave older rows out, if there are too many; of neighbours the one stays that says most."""
        if len(self._rows) < _MOST:
            return
        rounds = sorted(self._rows)
        older, newest = rounds[:-_NEWEST], rounds[-_NEWEST:]
        while (older[-1] - older[0]) // self.stride >= _OLDER:
            self.stride *= 2
        says_most: dict[int, int] = {}
        for number in older:
            before = says_most.get(number // self.stride)
            if before is None or self._says(number) >= self._says(before):
                says_most[number // self.stride] = number
        self._keep([*says_most.values(), *newest])

    def _says(self, round: int) -> int:
        """Return how many numbers of its own a row has."""
        return sum(not name.startswith(_SKIPPED) for name in self._rows[round])

    def _keep(self, rounds: list[int]) -> None:
        """Keep these rows; the next one after a row that is left out says what that has added up to."""
        kept, self._rows = dict(sorted(self._rows.items())), {}
        staying, skipped = set(rounds), dict.fromkeys(_ADDED, 0.0)
        self.revision += 1
        for number, row in kept.items():
            for name in _ADDED:
                skipped[name] += row.get(_SKIPPED + name) or 0
                if number not in staying:
                    skipped[name] += row.get(name) or 0
                elif skipped[name]:
                    row[_SKIPPED + name] = skipped[name]
                    skipped[name] = 0.0
            if number in staying:
                self._rows[number] = row
        self._revisions = dict.fromkeys(self._rows, self.revision)
        self._thinned = self.revision

    def is_thinned_since(self, revision: int) -> bool:
        """Whether a viewer may have rows that are not here any more."""
        return 0 < revision < self._thinned

    def since(self, revision: int) -> dict[str, list[Value]]:
        """Return the rows that changed since then, as columns."""
        found = []
        for round in reversed(self._rows):
            if self._revisions[round] <= revision:
                break
            found.append(self._rows[round])
        names = dict.fromkeys(name for row in found for name in row)
        return {name: [finite(row.get(name)) for row in reversed(found)] for name in names}

    def row(self, round: int) -> Mapping[str, Value] | None:
        """Return what is known of a round, None if that is nothing."""
        return self._rows.get(round)

    def newest(self) -> Mapping[str, Value]:
        """Return the row of the highest round, empty if there is none."""
        return self._rows[max(self._rows)] if self._rows else {}

    def __len__(self) -> int:
        return len(self._rows)


def _known(value: float) -> Value:
    return value if math.isfinite(value) else None


def finite(value: Value) -> Value:
    """Return a number as JSON can hold it, with the digits that a picture shows."""
    if value is None or isinstance(value, int) or not math.isfinite(value):
        return value if isinstance(value, int) else None
    return float(f"{value:.6g}") if abs(value) < _LARGE else round(value, 2)


def _is_drawn(name: str, value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NOT_DRAWN
