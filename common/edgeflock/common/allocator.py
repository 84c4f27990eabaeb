"""glibc's allocator, told to keep the pages of chunk buffers: to fault them in anew is a fifth of the CPU."""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def keep_pages(*, largest_buffer: int = 4 << 20, kept: int = 64 << 20, arenas: int = 2) -> None:
    """Serve buffers up to that size from pages that stay, and keep at most so many free bytes.

    Does nothing where the C library has no mallopt.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, largest_buffer)
        mallopt(_M_TRIM_THRESHOLD, kept)
        mallopt(_M_ARENA_MAX, arenas)
