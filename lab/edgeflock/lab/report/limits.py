"""What a run was to reach and what it might use, and how far it came."""

from __future__ import annotations

from edgeflock.lab.history import History
from edgeflock.server import target
from edgeflock.server.console.summary import spending
from edgeflock.server.records import read_used


def limits(history: History) -> list[str]:
    """Return a sentence on its budgets and one on its target, if it has them."""
    told = spending(history.events, read_used(history.meta))
    used = "; ".join(f"{name} {said}" for name, said in told)
    goal = target.parse(history.config.target).accuracy
    found = [f"Used of the budgets: {used}."] if used else []
    return found if goal is None else [*found, f"Target: accuracy {goal:g}, {_came(history, goal)}."]


def _came(history: History, goal: float) -> str:
    point = history.reached(goal)
    if point is not None:
        return f"reached in round {point.round:,}"
    return "not reached" if history.ending else "not reached yet"
