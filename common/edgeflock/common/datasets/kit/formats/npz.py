"""NumPy's .npz archives, read without pickle; every fault is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgeflock.common.datasets.kit.base import Array
from edgeflock.common.errors import BadData, MissingData


def read(path: Path) -> dict[str, Array]:
    """Return all arrays of an archive. Raises MissingData or BadData."""
    if not path.is_file():
        raise MissingData(f"{path} is not there or not a file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise MissingData(f"{path} cannot be read: {error.strerror}") from error
    with file, _opened(path, file) as archive:
        return {name: _array(path, archive, name) for name in archive.files}


def _opened(path: Path, file: BinaryIO) -> np.lib.npyio.NpzFile:
    try:
        archive = np.load(file, allow_pickle=False)
    except Exception as error:  # NumPy and zipfile raise many kinds for what is damaged
        raise BadData(f"{path} is not an .npz archive of NumPy") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise BadData(f"{path} holds a single array, needed is an .npz archive with named arrays")
    return archive


def _array(path: Path, archive: np.lib.npyio.NpzFile, name: str) -> Array:
    try:
        array: Array = archive[name]
    except Exception as error:  # as above: a damaged header may raise anything
        objects = "Object arrays" in str(error)
        fault = "holds Python objects, allowed are numbers" if objects else f"cannot be read ({error})"
        raise BadData(f"{path}: array {name!r} {fault}") from error
    if not isinstance(array, np.ndarray):
        raise BadData(f"{path}: {name!r} is not an array of NumPy")
    return array


def pick(path: Path, arrays: dict[str, Array], *needed: str) -> list[Array]:
    """Return the arrays of these names. Raises BadData that names the first that is not there."""
    for name in needed:
        if name not in arrays:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise BadData(f"{path} has no array {name!r}, needed are {' and '.join(needed)}; it holds {held}")
    return [arrays[name] for name in needed]


def channels_first(x: Array) -> Array:
    """Give grey images a channel dimension and put a last dimension of colours (or one grey) first."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return x
