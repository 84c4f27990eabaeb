"""How plots look: colours for light and dark, and figures as SVG and PNG. Figures alone, no pyplot.

An SVG holds the colours of the light theme as they are, so that any program can show it; a style sheet
inside it replaces each of them where the reader's system asks for dark.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER, INK, FAINT, GRID = "#ffffff", "#1c2127", "#59636e", "#e3e6ea"
NEUTRAL = "#9aa3ad"
# Light and dark of each hue; the order is that of runs and of parts of a stack.
HUES = (
    ("#1f6fb4", "#64aff0"),  # blue
    ("#d4660a", "#f6a04d"),  # orange
    ("#2b8a4b", "#65cb85"),  # green
    ("#8b4db8", "#c598ee"),  # purple
    ("#c4363a", "#f4807f"),  # red
    ("#0d8487", "#45cccc"),  # teal
    ("#b8468a", "#f18cc4"),  # pink
    ("#7d6232", "#cfb077"),  # brown
)
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.2)))
# Shapes of marks as matplotlib calls them, and as a path in a legend's 36 x 10: methods have one each, for
# readers who cannot tell their colours.
SHAPES = {
    "o": "M18 1.2a3.8 3.8 0 1 0 .01 0z",
    "s": "M14.6 1.6h6.8v6.8h-6.8z",
    "^": "M18 .8l4.4 8h-8.8z",
    "D": "M18 .4l4.6 4.6-4.6 4.6-4.6-4.6z",
    "v": "M18 9.2l4.4-8h-8.8z",
    "P": "M16.4 1h3.2v2.4H22v3.2h-2.4V9h-3.2V6.6H14V3.4h2.4z",
    "X": "M14.6 3.2l1.8-1.8L18 3l1.6-1.6 1.8 1.8L19.8 5l1.6 1.8-1.8 1.8L18 7l-1.6 1.6-1.8-1.8L16.2 5z",
    "*": "M18 .2l1.4 3.3 3.5.3-2.7 2.3.8 3.5L18 7.8l-3 1.8.8-3.5-2.7-2.3 3.5-.3z",
}
LARGEST = len(HUES) * len(DASHES)  # runs that can be told apart
DARK = {
    PAPER: "#14171a", INK: "#e4e7eb", FAINT: "#a3acb6", GRID: "#2c3238", NEUTRAL: "#6c757f", **dict(HUES)
}  # fmt: skip
_DPI = 200
_SETTINGS: Any = {
    "text.parse_math": False,  # a name may hold a $
    "svg.fonttype": "path",  # the same on every machine, whatever fonts it has
    "svg.hashsalt": "edgeflock",  # the same bytes for the same data
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.facecolor": PAPER,
    "axes.edgecolor": NEUTRAL,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": NEUTRAL,
    "ytick.color": NEUTRAL,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": PAPER,
}


@dataclass(frozen=True)
class Stroke:
    """How the line of one run, or of one method, looks, in plots and in the legend of the page."""

    colour: str
    dark: str
    dash: Any
    shape: str = ""  # of the marks on it; empty: small dots

    @property
    def pattern(self) -> str:
        """The dash as SVG writes it; empty for a solid line."""
        return "" if self.dash == "-" else " ".join(f"{2 * length:g}" for length in self.dash[1])

    @property
    def mark(self) -> str:
        """The path of its mark in a legend; empty if it has none of its own."""
        return SHAPES.get(self.shape, "")


def stroke(number: int, dash: int | None = None) -> Stroke:
    """Return the look of the line of that number, from 0: colours first, then dashes, unless one is given."""
    colour, dark = HUES[number % len(HUES)]
    return Stroke(colour, dark, DASHES[number // len(HUES) % len(DASHES) if dash is None else dash])


def marked(number: int, dash: int) -> Stroke:
    """Return the look of the method of that number: a colour and a shape of its own."""
    return replace(stroke(number, dash % len(DASHES)), shape=list(SHAPES)[number % len(SHAPES)])


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this theme."""
    from matplotlib import rc_context

    with rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the page has the name in full
        yield


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of that size in inches; call it inside `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def svg(made: Figure) -> str:
    """Return the figure as an SVG without a style sheet for dark; call it inside `styled`."""
    text = io.StringIO()
    made.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]


def png(made: Figure, path: Path) -> None:
    made.savefig(path, format="png", dpi=_DPI, metadata={"Software": None})


def save(made: Figure, path: Path) -> str:
    """Write the figure as path.svg, which follows light and dark, and path.png; return it as `svg` does.

    Call it inside `styled`.
    """
    text = svg(made)
    path.with_name(f"{path.name}.svg").write_text(standing_alone(text), "utf-8")
    made.set_layout_engine("none")  # it is laid out now: once is enough
    png(made, path.with_name(f"{path.name}.png"))
    return text


def standing_alone(text: str) -> str:
    """Return the text of an SVG file of its own, which follows the reader's light or dark."""
    head, tag, rest = text.partition("<defs>")
    style = f'<style type="text/css">@media (prefers-color-scheme: dark) {{\n{dark_rules()}\n}}</style>\n'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}{style}{tag}{rest}'


def inside_a_page(text: str, number: int, title: str) -> str:
    """Return the SVG as a part of a page: named for screen readers, its ids its own, as wide as its place."""
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>p{number}-", text)
    text = re.sub(r' width="[\d.]+pt"', "", re.sub(r' height="[\d.]+pt"', "", text, count=1), count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)


def dark_rules() -> str:
    """Return the CSS that turns light colours of an SVG into dark ones."""
    rules = [
        f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    ]
    return "\n".join([*rules, "svg image { filter: brightness(1.6) }"])
