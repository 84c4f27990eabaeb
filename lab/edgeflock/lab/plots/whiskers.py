"""Estimates drawn as bars or points with whiskers; what is only known to be more is pale and marked so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeflock.lab.plots.theme import DASHES, INK, PAPER, Stroke

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PALE = 0.35
_HATCHES = ("", "////", "....")  # as lines are dashed


@dataclass(frozen=True)
class Estimate:
    """A number with the ends of its interval."""

    value: float
    low: float
    high: float  # infinite: nobody knows how much more
    more: bool = False  # the value is a lower bound

    def over(self, divisor: float) -> Estimate:
        """Return it in a larger unit."""
        return Estimate(self.value / divisor, self.low / divisor, self.high / divisor, self.more)

    @property
    def top(self) -> float:
        """The end of its interval, or of what is known of it."""
        return self.high if math.isfinite(self.high) else self.value


def bar(axes: Axes, place: float, found: Estimate, look: Stroke, width: float, *, lying: bool) -> None:
    """Draw a bar: solid with whiskers, or pale where it is a lower bound."""
    draw: Any = axes.barh if lying else axes.bar
    draw(place, found.value, width, alpha=_PALE if found.more else None, **filled(look))
    whisker(axes, place, found, INK, lying=lying)


def filled(look: Stroke) -> dict[str, Any]:
    """Return how a bar looks: what is a dashed line elsewhere is hatched."""
    hatch = _HATCHES[DASHES.index(look.dash)] if look.dash in DASHES else ""
    return {"color": look.colour, "edgecolor": PAPER, "linewidth": 0, "hatch": hatch}


def whisker(axes: Axes, place: float, found: Estimate, colour: str, *, lying: bool) -> None:
    """Draw the interval of an estimate, with an arrow at an end that nobody knows."""
    ends = [[found.value - min(found.low, found.value)], [found.top - found.value]]
    x, y = (found.value, place) if lying else (place, found.value)
    error: Any = {"xerr": ends} if lying else {"yerr": ends}
    if not found.more and (ends[0][0] or ends[1][0]):
        axes.errorbar([x], [y], fmt="none", ecolor=colour, capsize=2.5, elinewidth=1, **error)
    if not math.isfinite(found.high):
        marker = ">" if lying else "^"
        axes.plot([x], [y], marker=marker, color=colour, markersize=5, clip_on=False, zorder=6)
