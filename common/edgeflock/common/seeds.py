"""Random numbers: every stream is derived from the run's seed and the words that say what it is for."""

from __future__ import annotations

import hashlib
import threading

from numpy.random import PCG64, Generator  # at once: NumPy's own late import fails in two threads at a time

GLOBAL = threading.Lock()  # held by whoever seeds and draws from the one generator that a whole library has


def derive(seed: int, *words: str | int) -> int:
    """Return a 63-bit seed that depends on nothing but its arguments."""
    text = "\x1f".join([str(seed), *(str(word) for word in words)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(seed: int, *words: str | int) -> Generator:
    """Return a NumPy generator (PCG64: the same numbers on every platform)."""
    return Generator(PCG64(derive(seed, *words)))
