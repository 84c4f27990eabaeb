"""How much longer a grid takes, by the cells that have finished, else by those that run. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_START_S = 1.0  # that the processes of a cell take to start at least, on two idle cores


@dataclass(frozen=True)
class Took:
    """A cell that has finished."""

    method: str
    seconds: float
    group: str = ""  # cells that differ in their seed alone


@dataclass(frozen=True)
class Ahead:
    """A cell that has not, and which share of its rounds is still to come."""

    method: str
    share: float = 1.0
    group: str = ""


def took(method: str, group: str, lives: Sequence[tuple[float, float]], seconds: float = 0.0) -> Took:
    """Return how long a cell took: all lives of its run, which the last `seconds` may be but a part of."""
    return Took(method, max(seconds, sum(end - begin for begin, end in lives)), group)


def seconds_left(took: Sequence[Took], ahead: Sequence[Ahead], jobs: int) -> float | None:
    """Return the seconds until the last cell has ended; None if there is nothing to go by.

    A cell takes as long as those did that differ from it in their seed alone; if none of them is known yet,
    as long as those of its method; else as long as all did.
    """
    if not took:
        return None
    left = [_mean(took, cell) * cell.share for cell in ahead]
    return max(sum(left) / jobs, max(left, default=0.0))


def _mean(took: Sequence[Took], cell: Ahead) -> float:
    group = [entry.seconds for entry in took if (entry.method, entry.group) == (cell.method, cell.group)]
    method = [entry.seconds for entry in took if entry.method == cell.method]
    return statistics.fmean(group or method or [entry.seconds for entry in took])


def words(took: Sequence[Took], ahead: Sequence[Ahead], jobs: int) -> str:
    """Return the estimate as part of a sentence, with what it stands on."""
    if not ahead:
        return "all cells are done"
    seconds = seconds_left(took, ahead, jobs)
    if seconds is None:
        return f"{rough(_START_S * len(ahead) / jobs)} or more left (processes start; better known soon)"
    known = {entry.method for entry in took}
    unknown = list(dict.fromkeys(cell.method for cell in ahead if cell.method not in known))
    ground = f"from {len(took)} finished" + (f", none of {', '.join(unknown)} yet" if unknown else "")
    return f"about {rough(seconds)} left ({ground})"


def rough(seconds: float) -> str:
    """Return seconds as an estimate is said: no more digits than it has."""
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
