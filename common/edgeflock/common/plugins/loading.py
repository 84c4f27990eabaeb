"""The one door for foreign code: `package.module:NAME` and entry points, with a sentence for every mistake.

A reference is imported where the operator of this machine has written it (`load`). A name from elsewhere,
such as a server's message, finds what is installed here under an entry point, or what `allow` was told of
from this process's own command line, and nothing else (`find`): no message makes a device import anything.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.foreign import ForeignError, foreign, is_authors

KINDS = ("methods", "models", "tasks", "datasets", "partitions", "transforms")

_ARGUED = ("datasets", "partitions")  # whose names may have an argument behind a colon, too
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", re.ASCII)
_OPERATOR = "operator torchvision::"
_allowed: set[str] = set()
T = TypeVar("T")


class PluginError(UsageError):
    """Foreign code cannot be loaded, or is not what it is taken for."""


@dataclass(frozen=True)
class Plugin:
    """What an installed package brings under an entry point of ours."""

    kind: str  # one of KINDS
    name: str
    reference: str  # package.module:NAME
    package: str  # as it was installed
    version: str

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        return f"{self.package} {self.version}"


def is_reference(text: str) -> bool:
    """Return whether a text has the form `package.module:NAME`."""
    return bool(_REFERENCE.fullmatch(text))


def load(reference: str, field: str, what: str = "NAME") -> Any:
    """Import what `package.module:NAME` names; one that lies where the command was typed is found, too.

    `field` is the option that says it, `what` the word for NAME in its sentence. Only for references that
    the operator of this machine has written, never for one from the wire.

    Raises BadValue if there is none, PluginError with file and line if its code fails.
    """
    form = f"package.module:{what}, importable from here"
    if not is_reference(reference):
        raise BadValue(field, reference, form)
    module_name, _, name = reference.partition(":")
    _look_here()
    try:
        with foreign(f"importing {module_name}"):
            module = _imported(module_name)
            found = getattr(module, name, None)
    except ForeignError as error:
        if _missing(error.__cause__, module_name):
            raise BadValue(field, reference, f"{form} ({error.__cause__})") from None
        raise PluginError(f"{field}: {error}") from error
    if found is None:
        near = get_close_matches(name, [known for known in vars(module) if not known.startswith("_")], n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise BadValue(field, reference, f"{form} (there is no {name} in {module_name}{hint})")
    is_authors(module_name)
    return found


def _imported(module: str) -> ModuleType:
    """Import a module; torchvision in it, too, where its compiled operators are of another torch."""
    try:
        return importlib.import_module(module)
    except RuntimeError as error:
        if _OPERATOR not in str(error):
            raise
    from edgeflock.common.plugins.torchvision_gate import torchvision  # brings torch

    torchvision()
    return importlib.import_module(module)


def _look_here() -> None:
    """Let a module that lies where the command was typed be found, after all others."""
    if "" not in sys.path:
        sys.path.append("")


def _missing(cause: BaseException | None, module: str) -> bool:
    """Whether it is the named module itself that is not there, and not something that it imports."""
    return isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}.")


@cache
def installed(kind: str) -> Mapping[str, tuple[Plugin, ...]]:
    """Return what installed packages bring of a kind, by name; nothing is imported for it."""
    found: dict[str, tuple[Plugin, ...]] = {}
    for point in entry_points(group=f"edgeflock.{kind}"):
        package, version = (point.dist.name, point.dist.version) if point.dist else ("a package", "")
        plugin = Plugin(kind, point.name, point.value.replace(" ", ""), package, version)
        if plugin not in found.get(point.name, ()):  # seen twice where two folders of the path are one
            found[point.name] = (*found.get(point.name, ()), plugin)
    return dict(sorted(found.items()))


def parted(text: str, known: Container[str]) -> tuple[str, str]:
    """Part what a name or a reference is given for an argument: `dirichlet:0.5`, `mine.cuts:SCHEME:0.5`."""
    name, _, rest = text.partition(":")
    reference, _, argument = rest.partition(":")
    reference = f"{name}:{reference}"
    return (reference, argument) if name not in known and is_reference(reference) else (name, rest)


def allow(reference: str, field: str) -> None:
    """Let `find` load a reference that the operator has written on this process's own command line."""
    if not is_reference(reference):
        raise BadValue(field, reference, "package.module:NAME")
    _allowed.add(reference)


def named(text: str) -> str:
    """Return a name that this machine's operator has written: if it is a reference, `find` may load it."""
    head, _ = parted(text, ())
    if is_reference(head):
        _allowed.add(head)
    return text


def allowed(reference: str) -> bool:
    """Return whether this process's own command line has named that reference."""
    return reference in _allowed


def find(kind: str, name: str, wanted: type[T]) -> T | None:
    """Return the plug-in of that name: of an entry point, or a reference that was allowed; None if neither.

    Raises PluginError for a reference that was not allowed, for code that fails, or that is no `wanted`.
    """
    if is_reference(name):
        if kind in _ARGUED and "." not in name and not _is_there(name.partition(":")[0]):
            return None  # no reference was meant: it is a name of ours with an argument, mistyped
        if not allowed(name):
            raise PluginError(
                f"{name!r} is code that this machine has not allowed: "
                f"start with --allow-code {name} if it is to run here"
            )
        return _checked(load(name, word(kind)), kind, name, "", wanted)
    plugins = installed(kind).get(name, ())
    if len(plugins) > 1:
        packages = " and ".join(plugin.package for plugin in plugins)
        raise PluginError(f"{word(kind)} {name!r} is brought by {packages}: uninstall all but one")
    if not plugins:
        return None
    plugin = plugins[0]
    try:
        found = load(plugin.reference, f"{word(kind)} {name} of {plugin.package}")
    except BadValue as error:
        raise PluginError(str(error)) from error
    return _checked(found, kind, name, f" of {plugin.package}", wanted)


def _is_there(module: str) -> bool:
    _look_here()
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # such as __main__, which is no file to be found
        return False


def _checked(found: object, kind: str, name: str, whose: str, wanted: type[T]) -> T:
    if not isinstance(found, wanted):
        raise PluginError(
            f"{word(kind)} {name}{whose} is of the type {type(found).__name__}, "
            f"wanted is {wanted.__module__}.{wanted.__qualname__}"
        )
    return found


def word(kind: str) -> str:
    """Return what one of a kind is called."""
    return {"datasets": "data set"}.get(kind, kind.removesuffix("s"))
