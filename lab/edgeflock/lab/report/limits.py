"""What a run was to reach and might use, how far it came, and what held its method back."""

from __future__ import annotations

from edgeflock.common.command.units import counted
from edgeflock.lab.history import History
from edgeflock.server.console.summary import spending
from edgeflock.server.core.target import Target


def limits(history: History) -> list[str]:
    """Return a sentence on its budgets, one on its target and one on its method's limit, if it has them."""
    told = spending(history.events, history.used)
    used = "; ".join(f"{name} {said}" for name, said in told)
    goal = history.target
    found = [f"Used of the budgets: {used}."] if used else []
    found += [f"Target: {goal}, {_came(history, goal)}."] if goal else []
    return [*found, *_pushes(history)]


def _came(history: History, goal: Target) -> str:
    point = None if goal.limit is None else history.reached(goal.limit, metric=goal.metric)
    if point is not None:
        return f"reached in round {point.round:,}"
    return "not reached" if history.ending else "not reached yet"


def _pushes(history: History) -> list[str]:
    """Say where FedTrip's limit was active: what was run is not the method as printed."""
    limited = [count for round in history.training if (count := round.metrics.get("push_limited"))]
    if not limited:
        return []
    rounds, most = counted(len(history.training), "round"), counted(int(max(limited)), "client")
    return [f"push_limit was active in {len(limited)} of {rounds}, for up to {most}."]
