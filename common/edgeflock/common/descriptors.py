"""How many files and connections this process may have open: as many as it is let."""

from __future__ import annotations

import contextlib
import resource


def raise_limit() -> int:
    """Raise the soft limit to the hard one, and return what holds: many systems begin at 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems let nobody have as many as they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """Return how many may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 62 if soft == resource.RLIM_INFINITY else soft
