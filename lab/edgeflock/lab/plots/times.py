"""Bars of what it took, in groups side by side: what each took stands above it, `>` where that is a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeflock.common.command.units import Scale
from edgeflock.lab.plots.names import elided
from edgeflock.lab.plots.theme import FAINT, INK, Stroke, figure
from edgeflock.lab.plots.whiskers import Estimate, bar, filled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR = 0.3  # inches
_GAP = 1.0  # bars between two groups
_LEAST, _MOST = 3.2, 12.0  # inches of the plot
_HEIGHT = 2.6
_LEGEND_ROW = 0.2
_LETTERS = 14  # in an inch of the legend
_WHOLE = 100  # from here on a number has no decimals
_CROWDED = 12  # bars: their numbers stand upright then


@dataclass(frozen=True)
class Bars:
    """The bars of one name, one in each group."""

    name: str
    look: Stroke
    found: Sequence[Estimate | None]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"


def times(groups: Sequence[str], bars: Sequence[Bars], label: str, unit: Scale) -> Figure:
    """Return the groups side by side, with as many bars each; call it inside `styled`."""
    count = len(groups) * (len(bars) + _GAP)
    width = min(_MOST, max(_LEAST, _BAR * count + 0.7))
    columns = max(1, min(len(bars), int(width / (0.5 + max(len(one.name) for one in bars) / _LETTERS))))
    made = figure(width, _HEIGHT + _LEGEND_ROW * -(-len(bars) // columns))
    axes = made.subplots()
    names = elided([one.name for one in bars], int(width / columns * _LETTERS))
    steep = len(groups) * len(bars) > _CROWDED
    for place, one in enumerate(bars):
        axes.bar([0], [0], label=names[place], **filled(one.look))
        for group, found in enumerate(one.found):
            x = group * (len(bars) + _GAP) + place
            if found is None:
                axes.text(x, 0, " not known", rotation=90, ha="center", va="bottom", fontsize=7, color=FAINT)
                continue
            scaled = found.over(unit.divisor)
            bar(axes, x, scaled, one.look, 0.8, lying=False)
            words = f"{'> ' if found.more else ''}{_shown(scaled.value)}"
            axes.annotate(
                words, (x, scaled.top), (0, 4), textcoords="offset points", ha="center", va="bottom",
                fontsize=7, color=INK, rotation=90 if steep else 0,
            )  # fmt: skip
    middle = (len(bars) - 1) / 2
    axes.set_xticks([group * (len(bars) + _GAP) + middle for group in range(len(groups))], list(groups))
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(unit.label(label))
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    made.legend(loc="outside lower center", ncols=columns)
    return made
