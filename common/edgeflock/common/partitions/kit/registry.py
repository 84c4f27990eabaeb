"""The partition schemes by name: every module of `partitions/` but the kit is one, no table to edit."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from edgeflock.common import partitions
from edgeflock.common.partitions.kit.base import Scheme

_KIT = "kit"


@cache
def schemes() -> dict[str, Scheme]:
    """Return every scheme by the name that the operator writes."""
    names = [module.name for module in pkgutil.iter_modules(partitions.__path__) if module.name != _KIT]
    found = [importlib.import_module(f"{partitions.__name__}.{name}").SCHEME for name in names]
    return {scheme.name: scheme for scheme in found}
