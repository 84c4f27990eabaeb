"""fl-lab datasets: what each set holds, and whether it is here, can be downloaded, or is to be brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from edgeflock.common.command import extras
from edgeflock.common.datasets.kit.base import Entry


def lines(entries: Mapping[str, Entry], root: Path) -> Iterator[str]:
    """Yield the list, grouped by where the data are; it fits into 80 columns."""
    groups: dict[str, list[str]] = {}
    own = [f"{name}:{entry.argument}" for name, entry in entries.items() if entry.argument]
    ordered = sorted(entries.items(), key=lambda pair: (_rank(pair[1], root), pair[1].home, pair[0]))
    for name, entry in ordered:
        if not entry.argument:
            groups.setdefault(_place(entry, root), []).append(_row(name, entry, root))
    yield f"{'':<16}{'input':>8}{'classes':>9}{'train':>10}{'test':>9}"
    for place, rows in groups.items():
        yield from (f"{place}:", *rows)
    yield f"your own, below --data-root: {', '.join(sorted(own))}"
    yield f"Looked in {root}; --data-root DIR looks elsewhere."
    if not extras.installed("torchvision"):
        yield f"A download {extras.needs('torchvision')}"


def _row(name: str, entry: Entry, root: Path) -> str:
    size = entry.size
    numbers = ("-",) * 4
    if size is not None:
        shape = "x".join(map(str, size.input_shape))
        numbers = (shape, f"{size.classes}", f"{size.train:,}", f"{size.test:,}")
    folder = entry.folder(root)
    where = "" if folder is None or folder == root else f"  {folder.relative_to(root)}"
    return f"  {name:<14}{numbers[0]:>8}{numbers[1]:>9}{numbers[2]:>10}{numbers[3]:>9}{where}"


def _rank(entry: Entry, root: Path) -> int:
    if entry.shipped:
        return 0
    return 1 if entry.folder(root) is not None else 2 if entry.downloads else 3


def _place(entry: Entry, root: Path) -> str:
    words = ("bundled", "here", "downloaded at first use", f"to be brought, from {entry.home}")
    return words[_rank(entry, root)]
