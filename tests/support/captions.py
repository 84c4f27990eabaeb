"""Plots that are not drawn: what a page says needs no pictures, and they take most of its seconds."""

from __future__ import annotations

from edgeflock.lab.plots.album import Album, Plot


class Captions(Album):
    """An album of captions alone."""

    def add(self, stem: str, title: str, caption: str, draw: object, on_page: object = None) -> Plot:
        self.count += 1
        return Plot(stem, title, caption, "")
