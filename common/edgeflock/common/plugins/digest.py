"""The digest of foreign code: what two ends compare to know that a name means the same on both.

It is SHA-256 over the source files of the package: for each `*.py` file below its folder, in the order of
their paths written with `/`, the path in UTF-8, a zero byte, and the SHA-256 of the file's bytes. The package
is the outermost one of the module that has an `__init__.py`; a module in none is the one file that it is.
Other modules that it imports are not in it. Nothing is imported to compute it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from edgeflock.common.plugins.loading import KINDS, installed, is_reference, word

MODEL = "models", "custom"  # the model of a run whose name every end has of its own operator
_SHOWN = 12  # digits of a digest, in a sentence


@dataclass(frozen=True)
class Code:
    """What a name of a run leads to at one end."""

    kind: str  # one of KINDS; empty: whatever is asked for by that name
    name: str
    digest: bytes  # empty: not known

    def __str__(self) -> str:
        return f"the {word(self.kind)} {self.name}"


def of_run(names: Iterable[tuple[str, str]], model: str = "") -> tuple[Code, ...]:
    """Return the code behind those names (kind, name) of a run that are plug-ins, and its own model's."""
    found = [(kind, name, _reference(kind, name)) for kind, name in names]
    own = [(*MODEL, model)] if model else []
    return tuple(Code(kind, name, digest(reference)) for kind, name, reference in [*found, *own] if reference)


def of_device(allowed: Iterable[str], model: str | None) -> tuple[Code, ...]:
    """Return all foreign code that a run could ask this device for."""
    points = [(kind, name) for kind in KINDS for name in installed(kind)]
    named = tuple(Code("", reference, digest(reference)) for reference in allowed)
    return of_run(points, model or "") + named


def differences(asked: Iterable[Code], had: Iterable[Code]) -> Iterator[str]:
    """Yield a sentence for what a run asks for that a client has not, or has otherwise."""
    there = {(code.kind, code.name): code.digest for code in had}
    for code in asked:
        theirs = there.get((code.kind, code.name), there.get(("", code.name)))
        if theirs is None:
            yield f"the client names no code of {code}"
        elif not (theirs and code.digest):
            where = "server" if theirs else "client"
            yield f"the code of {code} cannot be compared: no source files at the {where}"
        elif theirs != code.digest:
            yield f"the code of {code} is {_short(theirs)} at the client, {_short(code.digest)} at the server"


def _short(digest: bytes) -> str:
    return digest.hex()[:_SHOWN]


def _reference(kind: str, name: str) -> str:
    """Return where a plug-in's code is; empty if it is none, or two packages bring it."""
    if is_reference(name):
        return name
    found = installed(kind).get(name, ())
    return found[0].reference if len(found) == 1 else ""


def digest(reference: str) -> bytes:
    """Return the digest of the package that a reference leads to; empty if there are no source files."""
    spec = _outermost(reference.partition(":")[0])
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return b""
    folder = (spec.submodule_search_locations or [""])[0]
    return _of_files(folder, "" if folder else spec.origin)


def _outermost(module: str) -> ModuleSpec | None:
    """Return the first on the way to a module that is no namespace; only namespaces are imported for it."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        try:
            spec = find_spec(".".join(parts[:end]))
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is not None:
            return spec
    return None


@cache  # as the code was when this process loaded it
def _of_files(folder: str, single: str) -> bytes:
    paths = [Path(single)] if single else list(Path(folder).rglob("*.py"))
    root = Path(folder) if folder else Path(single).parent
    found = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in paths):
        found.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.digest()
