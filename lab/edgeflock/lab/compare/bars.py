"""What groups of runs took, as lying bars in the colours of their lines, with the deviation over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeflock.common.command.units import Scale, scale
from edgeflock.lab.findings.groups import Figure as What
from edgeflock.lab.findings.groups import Group
from edgeflock.lab.plots.costs import name_rows
from edgeflock.lab.plots.curves import SIZE
from edgeflock.lab.plots.theme import FAINT, INK, Stroke, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {"bytes": "bytes", "seconds": "seconds", "flops": "flops", "energy_j": "energy"}


def by_group(groups: Sequence[Group], looks: Sequence[Stroke], what: What, label: str) -> Figure | None:
    """Return a bar for every group that has the figure, the others named as such; None if none has it."""
    known = [group.spreads[what] for group in groups if what in group.spreads]
    if not known:
        return None
    quantity = QUANTITIES.get(what[1])
    unit = scale(quantity, [found.mean for found in known]) if quantity else Scale()
    made = figure(SIZE[0], 0.8 + 0.24 * len(groups))
    axes = made.subplots()
    for row, (group, look) in enumerate(zip(groups, looks, strict=True)):
        if (found := group.spreads.get(what)) is None:
            axes.text(0, row, " not reached", va="center", fontsize=8, color=FAINT)
            continue
        error = unit.of([found.deviation]) if found.deviation is not None else None
        axes.barh(row, unit.of([found.mean]), 0.7, color=look.colour, linewidth=0)
        axes.errorbar(
            unit.of([found.mean]), [row], xerr=error, fmt="none", ecolor=INK, capsize=2.5, elinewidth=1
        )
    name_rows(axes, [group.name for group in groups], "")
    axes.set_xlim(left=0)
    axes.set_xlabel(unit.label(label))
    return made
