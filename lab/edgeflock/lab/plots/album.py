"""The plots of a report: drawn once for the page, and as PNG and SVG files beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeflock.lab.plots import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """One plot on the page."""

    stem: str  # of its files
    title: str
    caption: str
    svg: str  # markup of our own making; texts in it are paths


class Album:
    """A folder of plots; `begin` empties it of those that an earlier report has left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in (*self.folder.glob("*.svg"), *self.folder.glob("*.png")):
            old.unlink()

    def add(
        self,
        stem: str,
        title: str,
        caption: str,
        draw: Callable[[], Figure | None],
        on_page: Callable[[], Figure | None] | None = None,
    ) -> Plot | None:
        """Draw a plot and write its files; None if there is nothing to draw.

        `on_page` draws it for the page if it looks different there.
        """
        stem = re.sub(r"[^\w.-]+", "-", stem)  # methods and models of others have names of any kind
        with theme.styled():
            made = draw()
            if made is None:
                return None
            text = theme.save(made, self.folder / stem)
            if on_page is not None and (other := on_page()) is not None:
                text = theme.svg(other)
        self.count += 1
        return Plot(stem, title, caption, theme.inside_a_page(text, self.count, f"{title}. {caption}"))
