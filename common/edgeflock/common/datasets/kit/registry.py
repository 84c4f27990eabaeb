"""The data sets by name: every module of `datasets/` but the kit brings some, and every plug-in one."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock

from edgeflock.common import datasets
from edgeflock.common.datasets.kit.base import Dataset, Entry, Scaling
from edgeflock.common.datasets.kit.home import default_root
from edgeflock.common.errors import BadValue, MissingData, UnknownName
from edgeflock.common.foreign import foreign
from edgeflock.common.plugins.loading import find, installed, parted

_KIT = "kit"
UNIT = "unit"  # `mnist:unit`: pixels in [0, 1], not standardised

_lock = Lock()
_loaded: dict[tuple[str, Path | None], Dataset] = {}


def names() -> list[str]:
    """Return every name that `load` knows; those that take an argument with it, as in `folder:NAME`."""
    own = (f"{name}:{entry.argument}" if entry.argument else name for name, entry in entries().items())
    return sorted({*own, *installed("datasets")})


def load(spec: str, root: Path | None = None) -> Dataset:
    """Return a data set as the operator names it, read below the data root; decoded once per process.

    Without a root the user's cache is it. What torchvision knows is downloaded if it is not there.

    Raises UnknownName, BadValue, MissingData or BadData with a sentence.
    """
    head, argument = _parted(spec)
    head, argument = _stored(head, argument, root)
    entry = _entry(head, argument)
    root = _root(head, entry, root)
    key = (f"{head}:{argument}", root)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _read(head, argument, entry, root)
        return _loaded[key]


def data_root(given: Path | None) -> Path:
    """Return the folder in which data sets are looked for: the given one, else that of the user's cache."""
    return given or default_root()


@cache
def entries() -> dict[str, Entry]:
    """Return what the package itself has, by name."""
    found: dict[str, Entry] = {}
    for module in pkgutil.iter_modules(datasets.__path__):
        if module.name != _KIT:
            found.update(importlib.import_module(f"{datasets.__name__}.{module.name}").SETS)
    return found


def entry_of(head: str) -> Entry | None:
    """Return the entry of a name, the package's own or a plug-in's. Raises PluginError."""
    return entries().get(head) or find("datasets", head, Entry)


def about(name: str) -> str:
    """Return in words what a plug-in's data set holds, without reading it. Raises PluginError."""
    entry = find("datasets", name, Entry)
    size = entry.size if entry else None
    if size is None:
        return "a data set"
    shape = "x".join(map(str, size.input_shape))
    return f"{shape}, {size.classes} classes, {size.train:,} + {size.test:,} samples"


def _parted(spec: str) -> tuple[str, str]:
    return parted(spec, {*entries(), *installed("datasets")})


def _stored(head: str, argument: str, root: Path | None) -> tuple[str, str]:
    """A name that is no set of ours means ROOT/NAME.npz, if that file is there."""
    plain = not argument and head not in entries() and "/" not in head and ":" not in head
    if plain and root is not None and (root / f"{head}.npz").is_file():
        return "npz", head
    return head, argument


def _entry(head: str, argument: str) -> Entry:
    entry = entry_of(head)
    if entry is None:
        raise UnknownName("data set", head, names())
    if entry.argument and not argument:
        raise BadValue("data set", head, f"{head}:{entry.argument}")
    if not entry.argument and argument not in ("", UNIT):
        raise BadValue("data set", f"{head}:{argument}", f"{head} or {head}:{UNIT} (pixels in [0, 1])")
    return entry


def _root(head: str, entry: Entry, given: Path | None) -> Path | None:
    """Return the folder in which the set is looked for, None for what needs none."""
    if entry.shipped:
        return None
    if given is None:
        if entry.argument:  # the user's own files
            raise MissingData(f"{head}: no data root is given (--data-root)")
        return default_root()
    if not given.is_dir():
        home = f"; people get the files from {entry.home}" if entry.home else ""
        raise MissingData(f"{head}: the data root {given} is not a folder{home}")
    return given


def _read(head: str, argument: str, entry: Entry, root: Path | None) -> Dataset:
    with nullcontext() if head in entries() else foreign(f"reading the data set {head}"):
        dataset = _as_named(head, argument, entry, root)
    dataset = replace(dataset, scaling=entry.scaling)
    return dataset.unit() if argument == UNIT and not entry.argument else dataset


def _as_named(head: str, argument: str, entry: Entry, root: Path | None) -> Dataset:
    try:
        return entry.read(argument if entry.argument else head, root or Path())
    except OSError as error:
        raise MissingData(
            f"{head}: {error.filename or root} cannot be read: {error.strerror or error}"
        ) from error


def scaling(spec: str | None) -> Scaling:
    """Return how the stored numbers of a data set become what is trained on; its files need not be there.

    Without a data set, and for files of the user's own, bytes are divided by 255.
    """
    head, argument = _parted(spec or "")
    entry = entry_of(head)
    if entry is None:
        return Scaling()
    return entry.scaling.unit() if argument == UNIT and not entry.argument else entry.scaling
