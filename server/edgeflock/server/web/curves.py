"""The numbers of every committed round, and which of them a viewer does not have yet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Value = float | int | None

_LARGE = 1e5  # moments are
_NOT_DRAWN = {"round", "budget"}


class Curves:
    """Rows by round; every change gives a row the next revision."""

    def __init__(self) -> None:
        self.revision = 0
        self.cut = 0  # how often rounds were taken back
        self._rows: dict[int, dict[str, Value]] = {}  # Invariant: in the order of their revisions
        self._revisions: dict[int, int] = {}

    def put(self, round: int, values: Mapping[str, Any]) -> None:
        """Add values to a round."""
        row = self._rows.pop(round, {"round": round})
        row.update({name: finite(value) for name, value in values.items() if _is_drawn(name, value)})
        self.revision += 1
        self._rows[round], self._revisions[round] = row, self.revision

    def cut_after(self, round: int) -> None:
        """Take back what came after a round: the run goes on from there."""
        for number in [number for number in self._rows if number > round]:
            del self._rows[number], self._revisions[number]
        self.cut += 1

    def since(self, revision: int) -> dict[str, list[Value]]:
        """Return the rows that changed since then, as columns."""
        found = []
        for round in reversed(self._rows):
            if self._revisions[round] <= revision:
                break
            found.append(self._rows[round])
        names = dict.fromkeys(name for row in found for name in row)
        return {name: [row.get(name) for row in reversed(found)] for name in names}

    def row(self, round: int) -> Mapping[str, Value] | None:
        """Return what is known of a round, None if that is nothing."""
        return self._rows.get(round)

    def newest(self) -> Mapping[str, Value]:
        """Return the row of the highest round, empty if there is none."""
        return self._rows[max(self._rows)] if self._rows else {}

    def __len__(self) -> int:
        return len(self._rows)


def finite(value: float | int) -> Value:
    """Return a number as JSON can hold it, with the digits that a picture shows."""
    if isinstance(value, int) or not math.isfinite(value):
        return value if isinstance(value, int) else None
    return float(f"{value:.6g}") if abs(value) < _LARGE else round(value, 2)


def _is_drawn(name: str, value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NOT_DRAWN
