"""What can happen to a file on a disk that rots: bytes flipped, ends cut off, all lost."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

Damaged = tuple[str, bytes]  # what was done, and what there is then


def flipped(content: bytes, place: int, dice: random.Random) -> Damaged:
    """Another value in one byte."""
    mask = dice.randint(1, 255)
    changed = content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]
    return f"byte {place} of {len(content)} xor {mask}", changed


def every_byte(content: bytes, end: int, dice: random.Random) -> Iterator[Damaged]:
    """Each byte of the beginning flipped: a header."""
    for place in range(min(end, len(content))):
        yield flipped(content, place, dice)


def random_bytes(content: bytes, count: int, dice: random.Random) -> Iterator[Damaged]:
    for _ in range(count):
        yield flipped(content, dice.randrange(len(content)), dice)


def truncations(content: bytes, parts: int = 50) -> Iterator[Damaged]:
    """Cut at every fiftieth of the size; the first one leaves nothing."""
    for part in range(parts):
        size = len(content) * part // parts
        yield f"cut to {size} of {len(content)} bytes", content[:size]


def everything(content: bytes, header: int, count: int, dice: random.Random) -> Iterator[Damaged]:
    """All of the above: every byte of the header, so many random ones, all truncations."""
    yield from every_byte(content, header, dice)
    yield from random_bytes(content, count, dice)
    yield from truncations(content)


def some(damaged: Iterable[Damaged], count: int, dice: random.Random) -> list[Damaged]:
    """A sample."""
    return dice.sample(list(damaged), count)


def copied(source: Path, to: Path) -> Path:
    """Make `to` the copy of a directory."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)
    return to


@contextlib.contextmanager
def quick_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory where the system has such a place: each start of a server syncs a lot."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
