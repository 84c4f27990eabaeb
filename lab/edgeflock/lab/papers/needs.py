"""What a paper's runs need: data sets by name, whether they are here, and from where they come."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.datasets.kit import registry
from edgeflock.lab.grid.grid import Grid


def sets_of(grid: Grid) -> list[str]:
    """Return the data sets of a grid, each once, without what is done to their pixels."""
    return list(dict.fromkeys(str(cell.config.dataset).partition(":")[0] for cell in grid.cells))


def absent(grid: Grid, root: Path | None) -> list[str]:
    """Return a sentence for every data set that is not below the data root: where it comes from."""
    found, place = [], registry.data_root(root)
    for name in sets_of(grid):
        entry = registry.entries().get(name)
        if entry is None or entry.shipped or entry.folder(place) is not None:
            continue
        got = f"its files come from {entry.home}"
        got += ", and are downloaded at the first run if that can be reached" if entry.downloads else ""
        found.append(f"{name} is not below {place}: {got}")
    return found
