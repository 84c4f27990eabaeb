"""glibc's allocator, told to keep the pages of chunks, activations and gradients: new ones are faulted in.

By itself it maps every buffer above a threshold anew, and raises that threshold by what is freed; to set any
bound of it ends this. So the bound is the highest that glibc takes. One arena: every further one has heaps
of 64 MiB at most, which it unmaps when they are empty, and keeps free pages of its own.
"""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def keep_pages(*, largest_buffer: int = 32 << 20, kept: int = 64 << 20, arenas: int = 1) -> None:
    """Serve buffers up to that size from pages that stay, and keep at most so many free bytes at the end.

    Does nothing where the C library has no mallopt.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, largest_buffer)
        mallopt(_M_TRIM_THRESHOLD, kept)
        mallopt(_M_ARENA_MAX, arenas)
