"""The data sets by name; one file each beside this one, found by its `SETS`. A new set = a new file."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from threading import Lock

from edgeflock.common.datasets.base import Dataset, Entry, Part
from edgeflock.common.errors import BadValue, MissingData, UnknownName

__all__ = ["Dataset", "Entry", "Part", "load", "names"]

UNIT = "unit"  # `mnist:unit`: pixels in [0, 1], not standardised

_lock = Lock()
_loaded: dict[tuple[str, Path | None], Dataset] = {}


def names() -> list[str]:
    """Return every name that `load` knows; those that take an argument with it, as in `folder:NAME`."""
    return sorted(f"{name}:{entry.argument}" if entry.argument else name for name, entry in _sets().items())


def load(spec: str, root: Path | None = None) -> Dataset:
    """Return a data set as the operator names it, read below the data root; decoded once per process.

    Raises UnknownName, BadValue, MissingData or BadData with a sentence.
    """
    head, _, argument = spec.partition(":")
    head, argument = _stored(head, argument, root)
    entry = _entry(head, argument, root)
    key = (f"{head}:{argument}", None if entry.shipped else root)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _read(head, argument, entry, root)
        return _loaded[key]


@cache
def _sets() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for module in pkgutil.iter_modules(__path__):
        found.update(getattr(importlib.import_module(f"{__name__}.{module.name}"), "SETS", {}))
    return found


def _stored(head: str, argument: str, root: Path | None) -> tuple[str, str]:
    """A name that is no set of ours means ROOT/NAME.npz, if that file is there."""
    plain = not argument and head not in _sets() and "/" not in head
    if plain and root is not None and (root / f"{head}.npz").is_file():
        return "npz", head
    return head, argument


def _entry(head: str, argument: str, root: Path | None) -> Entry:
    entry = _sets().get(head)
    if entry is None:
        raise UnknownName("data set", head, names())
    if entry.argument and not argument:
        raise BadValue("data set", head, f"{head}:{entry.argument}")
    if not entry.argument and argument not in ("", UNIT):
        raise BadValue("data set", f"{head}:{argument}", f"{head} or {head}:{UNIT} (pixels in [0, 1])")
    if not entry.shipped:
        _check_root(head, entry, root)
    return entry


def _check_root(head: str, entry: Entry, root: Path | None) -> None:
    home = f"; people get the files from {entry.home}" if entry.home else ""
    if root is None:
        raise MissingData(f"{head}: no data root is given (--data-root){home}")
    if not root.is_dir():
        raise MissingData(f"{head}: the data root {root} is not a folder{home}")


def _read(head: str, argument: str, entry: Entry, root: Path | None) -> Dataset:
    try:
        dataset = entry.read(argument if entry.argument else head, root or Path())
    except OSError as error:
        raise MissingData(
            f"{head}: {error.filename or root} cannot be read: {error.strerror or error}"
        ) from error
    return dataset.unit() if argument == UNIT and not entry.argument else dataset
