"""Pictures of runs where they are asked for: in a notebook, or as files."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue, MissingData, UnknownName
from edgeflock.common.scores import LOSS
from edgeflock.lab.history import History
from edgeflock.lab.notebook import tables
from edgeflock.lab.plots import curves, theme
from edgeflock.lab.plots.names import without_beginning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDEST = "34em"  # of a plot on a page
_ENDINGS = (".svg", ".png")


class Drawing:
    """Plots beside each other, which a notebook shows; `save` makes files of them."""

    def __init__(self, drawn: Sequence[tuple[str, Callable[[], Figure]]]) -> None:
        self._drawn = drawn

    def _repr_html_(self) -> str:
        parts = []
        for title, draw in self._drawn:
            with theme.styled():
                text = theme.svg(draw())
            number = zlib.crc32(text.encode())  # its ids are its own among all outputs of a notebook
            parts.append(theme.inside_a_page(text, number, title))
        places = "".join(f'<div style="flex: 1; max-width: {_WIDEST}">{part}</div>' for part in parts)
        return f'<div style="display: flex; background: {theme.PAPER}">{places}</div>'

    def __repr__(self) -> str:
        return (
            f"<a picture of {' and '.join(title for title, _ in self._drawn)}; save it with .save(FILE.svg)>"
        )

    def save(self, path: str | Path) -> None:
        """Write the plot as FILE.svg or FILE.png; several are numbered: FILE-1.svg, FILE-2.svg."""
        place = Path(path)
        if place.suffix not in _ENDINGS:
            raise BadValue("path", str(path), f"a file that ends with {' or '.join(_ENDINGS)}")
        for number, (_, draw) in enumerate(self._drawn, 1):
            file = place if len(self._drawn) == 1 else place.with_stem(f"{place.stem}-{number}")
            with theme.styled():
                if place.suffix == ".png":
                    theme.png(draw(), file)
                else:
                    file.write_text(theme.standing_alone(theme.svg(draw())), "utf-8")


def picture(histories: Sequence[History], what: str | None, over: str) -> Drawing:
    """Return the picture of that metric of these runs, of the first metric and the loss if none is named.

    Raises UnknownName with what there is to draw, MissingData if nothing was tested yet.
    """
    extras.require("a plot", "matplotlib")
    tested = list(dict.fromkeys(name for history in histories for name in tables.metrics(history)))
    told = curves.metrics(histories)
    names = [what] if what is not None else list(dict.fromkeys([*tested[:1], LOSS.name]))
    if what is not None and what not in (*tested, *told):
        raise UnknownName("metric", what, [*tested, *told])
    axis = tables.against(over)
    found = [_plot(histories, name, axis, of_tests=name in tested) for name in names if tested or told]
    drawn = [plot for plot in found if plot is not None]
    if not drawn:
        raise MissingData(f"{histories[0].run_dir} has nothing to draw yet: no test has been made")
    return Drawing(drawn)


def _plot(
    histories: Sequence[History], what: str, axis: curves.Against, *, of_tests: bool
) -> tuple[str, Callable[[], Figure]] | None:
    names = without_beginning([history.run_dir.name for history in histories])
    if of_tests:
        lines, title, x = curves.evaluations(histories, names, what, axis), f"test {what}", axis
    else:
        lines, x = curves.metric(histories, names, what), tables.against("rounds")
        title = curves.METRICS.get(what, (what.replace("_", " "), ""))[0]
    if not lines:
        return None
    frame = curves.loss_frame(lines) if what in (*curves.LOSSES, LOSS.name) else curves.Frame()
    legend = len(lines) > 1
    return title, partial(curves.draw, lines, x.title, title, x.quantity, legend=legend, frame=frame)
