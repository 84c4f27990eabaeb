"""One round as its time line: the server's seconds, and each member's fetch, train, deliver and wait."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from edgeflock.common.command.crowd import EVERYBODY, by_number, is_crowd, quantiles
from edgeflock.server.journal.reader import CellRow, Reader
from edgeflock.server.web.curves import finite
from edgeflock.server.web.story import ROUNDS, shown

_PHASES = ("fetch_s", "train_s", "deliver_s", "wait_s")


def read_round(run_dir: Path, round: int, find: str = "") -> dict[str, Any] | None:
    """Return the newest version of a round, or None if there is none. Raises BadData.

    Of a crowd those that took longest, whose id holds `find`, and how the parts of all spread.
    """
    with contextlib.closing(Reader(run_dir)) as reader, reader.moment():
        epoch = reader.last_held(round)
        if epoch is None:
            return None
        costs = reader.round_costs(epoch, round - 1, round).get((epoch, round), {})
        members = [_member(cell) for cell in reader.cells(epoch, round) if cell.verdict]
    server = {name: finite(value) for name, value in costs.items() if name.endswith("_s")}
    return {
        "round": round,
        "epoch": epoch,
        "server": {name: value for name, value in server.items() if " " not in name},
        "count": len(members),
        "complete": bool(members) and all("wait_s" in member for member in members),
        **_shown(members, find),
    }


def _shown(members: list[dict[str, Any]], find: str) -> dict[str, Any]:
    if not is_crowd(members):
        return {"members": members}
    found = [member for member in members if find.lower() in member["id"].lower()]
    found.sort(key=lambda member: -sum(member.get(name) or 0.0 for name in _PHASES[:-1]))
    verdicts = by_number(member["verdict"] for member in members)
    lies = {name: quantiles(member.get(name) for member in members) for name in _PHASES}
    return {
        "members": found[:EVERYBODY],
        "found": len(found),
        "verdicts": verdicts,
        "spread": {name: [*one.places] for name, one in lies.items() if one is not None},
    }


def _member(cell: CellRow) -> dict[str, Any]:
    told: dict[str, Any] = {"id": cell.client, "verdict": cell.verdict}
    numbers = {name: value for name, value in cell.costs.items() if isinstance(value, (int, float))}
    return told | {name: finite(value) for name, value in numbers.items()}


def read_events(run_dir: Path, before: int, limit: int, *, rounds: bool) -> list[dict[str, Any]]:
    """Return the events just before a cursor, oldest first, with or without those of every round.

    Raises BadData.
    """
    with contextlib.closing(Reader(run_dir)) as reader:
        return [shown(event) for event in reader.events_before(before, limit, () if rounds else ROUNDS)]
