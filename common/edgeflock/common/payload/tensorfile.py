"""safetensors files written and read in blocks, with a digest that is made in the same pass.

The format is that of the safetensors library (which reads these files); it is written here because
the library wants every tensor in memory at once, and because the order of the data must be that of
the layouts: the data region of a checkpoint is the payload of the next broadcast.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from edgeflock.common.errors import CorruptCheckpoint
from edgeflock.common.payload import tensorheader
from edgeflock.common.payload.checksum import Marks
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.memory import memory

BLOCK_BYTES = 4 << 20

Group = tuple[Layout, Tensor]


@dataclass(frozen=True)
class Written:
    """What a file holds: its identity, and the checksums of its data region."""

    digest: str
    data_start: int
    marks: Marks


def write(path: Path | str, groups: Sequence[Group], metadata: Mapping[str, str]) -> Written:
    """Write the tensors of all groups, one after the other, and fsync the file."""
    header = _header([layout for layout, _ in groups], metadata)
    marks = Marks()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(descriptor, memoryview(header))
        for _, flat in groups:
            _write_flat(descriptor, flat, marks)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Written(_digest(header, marks), len(header), marks)


def read(path: Path | str, groups: Sequence[Group], digest: str) -> tuple[dict[str, str], Written]:
    """Fill the groups' tensors from a file and return its metadata.

    Raises CorruptCheckpoint if the file is not, byte for byte, the one with that digest, OSError if that
    cannot be known now: a disk, or a system without a free descriptor, that fails to read it.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            header = tensorheader.read(file)
            metadata = dict(tensorheader.parse(header).metadata)
            if _header([layout for layout, _ in groups], metadata) != header:
                raise CorruptCheckpoint(f"{path} does not hold the tensors it should")
            marks = Marks()
            for _, flat in groups:
                _read_flat(file.fileno(), flat, marks, path)
            rest = os.read(file.fileno(), 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise CorruptCheckpoint(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    except ValueError as error:
        raise CorruptCheckpoint(f"{path} {error}") from None
    if rest or _digest(header, marks) != digest:
        raise CorruptCheckpoint(f"{path} is damaged: it has not the digest that the journal names")
    return metadata, Written(digest, len(header), marks)


def _header(layouts: Sequence[Layout], metadata: Mapping[str, str]) -> bytes:
    tensors = ((spec.name, layout.dtype, spec.shape) for layout in layouts for spec in layout.tensors)
    return tensorheader.make(tensors, metadata)


def _digest(header: bytes, marks: Marks) -> str:
    return hashlib.sha256(header + struct.pack("<QI", marks.size, marks.value)).hexdigest()


def _write_flat(descriptor: int, flat: Tensor, marks: Marks) -> None:
    if not flat.numel():
        return
    data = memory(flat)
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        marks.add(block)
        _write_all(descriptor, block)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read_flat(descriptor: int, flat: Tensor, marks: Marks, path: Path | str) -> None:
    if not flat.numel():
        return
    data = memory(flat)
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        filled = 0
        while filled < len(block):
            count = os.readv(descriptor, [block[filled:]])
            if not count:
                raise CorruptCheckpoint(f"{path} is shorter than its tensors")
            filled += count
        marks.add(block)
