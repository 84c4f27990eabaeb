"""Pools of threads that are all there from the beginning: what a run costs does not grow in its course."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads run; on its own it would start each when it is first needed."""
    pool = ThreadPoolExecutor(threads, name)
    together = Barrier(threads)
    wait([pool.submit(together.wait) for _ in range(threads)])
    return pool
