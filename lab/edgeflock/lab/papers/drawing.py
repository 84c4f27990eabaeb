"""The figures of a paper's runs as files: those that its file asks for, as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeflock.lab.compare import figures, picture
from edgeflock.lab.compare.figure_spec import read_figures
from edgeflock.lab.findings.findings import Findings

_DRAWN = "drawn"


@dataclass(frozen=True)
class Drawn:
    """What was drawn, and what could not be."""

    paths: tuple[Path, ...]
    lacking: tuple[str, ...]  # sentences


def draw(found: Findings, folder: Path, name: str, where: str) -> Drawn:
    """Draw the figures of a paper's file as NAME.svg, NAME.2.svg ...; without any, accuracy against costs."""
    asked = read_figures(found.grid.figures, found.grid.axes, where, found.grid.figure.name)
    paths, lacking = list[Path](), list[str]()
    for number, spec in enumerate(asked or (None,), 1):
        there = folder / (f"{name}.svg" if number == 1 else f"{name}.{number}.svg")
        there.unlink(missing_ok=True)
        drawn = folder / _DRAWN
        why = picture.draw(found, drawn) if spec is None else figures.draw(found, spec, drawn)
        if why:
            lacking.append(why)
            continue
        drawn.with_suffix(".svg").replace(there)
        drawn.with_suffix(".png").unlink()
        paths.append(there)
    return Drawn(tuple(paths), tuple(lacking))
