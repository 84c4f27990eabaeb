"""NumPy's .npz archives and .npy files, read without pickle; every fault is one sentence."""

from __future__ import annotations

import errno
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from edgeflock.common.datasets.kit.base import Array
from edgeflock.common.errors import BadData, MissingData

MAPPED_BYTES = 16 << 20  # smaller arrays are read: they are faster in memory


def read(path: Path) -> dict[str, Array]:
    """Return all arrays of an archive; large ones that are not compressed are mapped: nothing of them is read
    into memory but what is asked for. Raises MissingData or BadData."""
    if not path.is_file():
        raise MissingData(f"{path} is not there or not a file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise MissingData(f"{path} cannot be read: {error.strerror}") from error
    with file, _opened(path, file) as archive:
        return {name: _array(path, archive, name) for name in archive.files}


def single(path: Path) -> Array:
    """Return the array of an .npy file, mapped. Raises MissingData or BadData."""
    if not path.is_file():
        raise MissingData(f"{path} is not there or not a file")
    try:
        return npy.open_memmap(path, mode="r")
    except OSError as error:
        raise MissingData(_unmapped(path, error)) from error
    except Exception as error:  # NumPy raises many kinds for what is damaged
        objects = "Python objects" in str(error)
        fault = "holds Python objects, allowed are numbers" if objects else "is not an .npy file of NumPy"
        raise BadData(f"{path} {fault}") from error


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
        mapped = _mapped(path, archive, name)
        array: Array = archive[name] if mapped is None else mapped
    except OSError as error:
        raise MissingData(_unmapped(path, error)) from error
    except Exception as error:  # as above: a damaged header may raise anything
        objects = "Object arrays" in str(error)
        fault = "holds Python objects, allowed are numbers" if objects else f"cannot be read ({error})"
        raise BadData(f"{path}: array {name!r} {fault}") from error
    if not isinstance(array, np.ndarray):
        raise BadData(f"{path}: {name!r} is not an array of NumPy")
    return array


def _unmapped(path: Path, error: OSError) -> str:
    """Say why a file is not read or mapped."""
    limited = "; ulimit -v must be larger than what is mapped" if error.errno == errno.ENOMEM else ""
    return f"{path} cannot be read: {error.strerror or error}{limited}"


def _mapped(path: Path, archive: np.lib.npyio.NpzFile, name: str) -> Array | None:
    """Return a large array as a map of its bytes in the archive; None if it is small, or compressed.

    It is read through once, for its checksum.
    """
    zipped = archive.zip
    assert zipped is not None
    member = next((found for found in zipped.infolist() if found.filename == f"{name}.npy"), None)
    if member is None or member.compress_type != zipfile.ZIP_STORED or member.file_size < MAPPED_BYTES:
        return None
    with zipped.open(member) as stream:
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, kind = header(stream)
        offset = stream.tell()
        if kind.hasobject:
            return None  # which is refused as those of a small array are
        while stream.read(1 << 20):
            pass
    return np.memmap(path, kind, "r", _begin(path, member) + offset, shape, order="F" if by_columns else "C")


def _begin(path: Path, member: zipfile.ZipInfo) -> int:
    """Return where in the file the bytes of an archive's member begin."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)  # the lengths of name and extra field, which stand before them
        name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name) + int(extra)


def pick(path: Path, arrays: dict[str, Array], *needed: str) -> list[Array]:
    """Return the arrays of these names. Raises BadData that names the first that is not there."""
    for name in needed:
        if name not in arrays:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise BadData(f"{path} has no array {name!r}, needed are {' and '.join(needed)}; it holds {held}")
    return [arrays[name] for name in needed]


def channels_first(x: Array) -> Array:
    """Give grey images a channel dimension, put a last dimension of colours (or one grey) first; a view."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        return x.transpose(0, 3, 1, 2)
    return x
