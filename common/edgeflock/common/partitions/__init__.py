"""The partition schemes, one file each, found by its `SCHEME`. A new scheme = a new file."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from edgeflock.common.partitions.base import Pool, Scheme

__all__ = ["Pool", "Scheme", "schemes"]


@cache
def schemes() -> dict[str, Scheme]:
    """Return every scheme by the name that the operator writes."""
    modules = [
        importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
    ]
    return {module.SCHEME.name: module.SCHEME for module in modules if hasattr(module, "SCHEME")}
