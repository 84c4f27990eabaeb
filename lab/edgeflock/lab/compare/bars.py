"""What groups of runs took, as lying bars in the colours of their lines, with deviation or interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeflock.common.command.units import Scale, scale
from edgeflock.lab.findings.bounded import Middle
from edgeflock.lab.findings.groups import Figure as What
from edgeflock.lab.findings.groups import Group
from edgeflock.lab.findings.paired import Spread
from edgeflock.lab.plots.costs import name_rows
from edgeflock.lab.plots.curves import SIZE
from edgeflock.lab.plots.theme import FAINT, Stroke, figure
from edgeflock.lab.plots.whiskers import Estimate, bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "bytes": "bytes",
    "seconds": "seconds",
    "simulated_s": "seconds",
    "flops": "flops",
    "all_flops": "flops",
    "energy_j": "energy",
}


def of_median(found: Middle | None) -> Estimate | None:
    """Return a median as it is drawn: where it is not known, what it is more than."""
    if found is None:
        return None
    return Estimate(found.value.low, min(found.low, found.value.low), found.high, not found.value.exact)


def of_mean(found: Spread | None) -> Estimate | None:
    """Return a mean as it is drawn, with one deviation."""
    if found is None:
        return None
    reach = found.deviation or 0.0
    return Estimate(found.mean, found.mean - reach, found.mean + reach)


def estimate(group: Group, what: What) -> Estimate | None:
    """Return a figure of a group as it is drawn: up to a target the median, else the mean."""
    if what[0] is not None:
        return of_median(group.middles.get(what))
    return of_mean(group.spreads.get(what))


def unit_of(what: str, found: Sequence[Estimate]) -> Scale:
    """Return the unit in which these are drawn."""
    quantity = QUANTITIES.get(what)
    return scale(quantity, [one.top for one in found]) if quantity else Scale()


def by_group(groups: Sequence[Group], looks: Sequence[Stroke], what: What, label: str) -> Figure | None:
    """Return a bar for every group that has the figure, the others named as such; None if none has it."""
    found = [estimate(group, what) for group in groups]
    known = [one for one in found if one is not None]
    if not known:
        return None
    unit = unit_of(what[1], known)
    made = figure(SIZE[0], 0.8 + 0.24 * len(groups))
    axes = made.subplots()
    for row, (one, look) in enumerate(zip(found, looks, strict=True)):
        if one is None:
            axes.text(0, row, " not known", va="center", fontsize=8, color=FAINT)
        else:
            bar(axes, row, one.over(unit.divisor), look, 0.7, lying=True)
    name_rows(axes, [group.name for group in groups], "")
    axes.set_xlim(left=0)
    axes.set_xlabel(unit.label(label))
    return made
