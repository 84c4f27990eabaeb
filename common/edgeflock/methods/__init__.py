"""The methods: one file each, both halves together; found by name, no table to edit."""

from __future__ import annotations

import importlib
import pkgutil

from edgeflock.common.errors import UnknownName
from edgeflock.methods.base import Method

_PLUMBING = {
    "accumulate",
    "base",
    "batches",
    "effort",
    "fedadm_control",
    "fedadm_measure",
    "fedadm_memory",
    "fedadm_options",
    "local",
    "mirrors",
    "nesterov",
    "options",
    "order",
    "server_momentum",
    "split",
    "steps",
    "tools",
    "values",
    "workbench",
}


def names() -> list[str]:
    """Return the names of all methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _PLUMBING)


def load(name: str) -> Method:
    """Return the method of that name.

    Raises UnknownName, with the nearest name that exists.
    """
    if name not in names():
        raise UnknownName("method", name, names())
    method = importlib.import_module(f"{__name__}.{name}").METHOD
    assert isinstance(method, Method)
    return method
