"""The methods by name: every module and folder of `methods/` but the kit is one, and every plug-in."""

from __future__ import annotations

import importlib
import pkgutil

from edgeflock import methods
from edgeflock.common.errors import UnknownName
from edgeflock.common.plugins.loading import PluginError, find, installed
from edgeflock.methods.kit.base import ClientHalf, Method, ServerHalf
from edgeflock.methods.kit.options import Params

_KIT = "kit"
_OF_A_FOLDER = "method"  # the module of a method that takes several


def names() -> list[str]:
    """Return the names of the package's own methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(methods.__path__) if module.name != _KIT)


def load(name: str) -> Method:
    """Return the method of that name: the package's own, or a plug-in's.

    Raises UnknownName, with the nearest name that exists, or PluginError.
    """
    if name not in names():
        if (found := find("methods", name, Method)) is not None:
            return _sound(found, name)
        raise UnknownName("method", name, [*names(), *installed("methods")])
    module = importlib.import_module(f"{methods.__name__}.{name}")
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{module.__name__}.{_OF_A_FOLDER}")
    assert isinstance(module.METHOD, Method)
    return module.METHOD


def _sound(method: Method, name: str) -> Method:
    """Return a plug-in's method. Raises PluginError if its parts are not what they must be derived from."""
    for part, wanted in (("params", Params), ("server", ServerHalf), ("client", ClientHalf)):
        found = getattr(method, part)
        if not (isinstance(found, type) and issubclass(found, wanted)):
            words = (
                f"{part} is {found!r}, needed is a class derived from {wanted.__module__}.{wanted.__name__}"
            )
            raise PluginError(f"method {name}: {words}")
    return method
