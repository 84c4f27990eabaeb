"""The tasks by name: every module of `tasks/` but the kit is one, no table to edit; or the user's own."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from edgeflock.common import tasks
from edgeflock.common.errors import UnknownName
from edgeflock.common.plugins import loading
from edgeflock.common.tasks.kit.base import LearningTask

_KIT = "kit"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all tasks, sorted; a server asks for every client that joins, on its event loop."""
    found = [module.name for module in pkgutil.iter_modules(tasks.__path__) if module.name != _KIT]
    return tuple(sorted(name.replace("_", "-") for name in found))


def load(name: str) -> type[LearningTask]:
    """Return the task of that name: of the package, of an entry point, or a reference that was allowed.

    Raises UnknownName, with the nearest name that exists, or PluginError.
    """
    if name in names():
        module = importlib.import_module(f"{tasks.__name__}.{name.replace('-', '_')}")
        found: type[LearningTask] = module.TASK
        return found
    plugin = loading.find("tasks", name, type)
    if plugin is None:
        raise UnknownName("task", name, [*names(), *loading.installed("tasks")])
    if not issubclass(plugin, LearningTask):
        wanted = f"{LearningTask.__module__}.{LearningTask.__qualname__}"
        raise loading.PluginError(f"task {name} is no {wanted}: derive it from that")
    return plugin
