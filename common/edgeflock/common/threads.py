"""Threads that compute, each with as many threads within an operation as the bits rest on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch


def computing(threads: int, name: str, within: int = 1) -> ThreadPoolExecutor:
    """Return a pool whose threads compute with that many threads each.

    What `torch.set_num_threads` says holds for the thread that says it: a dot product in another one would
    be cut into as many parts as there are cores, and end in other bits (DESIGN rule 9).
    """
    return ThreadPoolExecutor(threads, name, torch.set_num_threads, (within,))
