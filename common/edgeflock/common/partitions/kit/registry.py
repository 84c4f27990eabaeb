"""The partition schemes by name: every module of `partitions/` but the kit is one, and every plug-in."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from edgeflock.common import partitions
from edgeflock.common.errors import UnknownName
from edgeflock.common.partitions.kit.base import Scheme
from edgeflock.common.plugins.loading import find, installed, parted

_KIT = "kit"


@cache
def schemes() -> dict[str, Scheme]:
    """Return every scheme of the package by the name that the operator writes."""
    names = [module.name for module in pkgutil.iter_modules(partitions.__path__) if module.name != _KIT]
    found = [importlib.import_module(f"{partitions.__name__}.{name}").SCHEME for name in names]
    return {scheme.name: scheme for scheme in found}


def scheme(text: str) -> tuple[str, Scheme, str]:
    """Return the name of a scheme, the package's own or a plug-in's, the scheme, and what stands behind it.

    Raises UnknownName or PluginError.
    """
    own = schemes()
    name, number = parted(text, {*own, *installed("partitions")})
    found = own.get(name) or find("partitions", name, Scheme)
    if found is None:
        raise UnknownName(
            "partition", name, [*(known.usage for known in own.values()), *installed("partitions")]
        )
    return name, found, number
