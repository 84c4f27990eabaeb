"""What there is by name, for completion and hints; no module that would bring torch is imported for it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from edgeflock.common.payload.choice import NAMES
from edgeflock.common.plugins.loading import installed


def methods() -> list[str]:
    own = {path.parts[0] for path in _defining("edgeflock.methods", "METHOD")}
    return sorted({*own, *installed("methods")})


def is_option(key: str) -> bool:
    """Return whether a method has an option of that name."""
    return bool(_defining("edgeflock.methods", rf"    {re.escape(key)}: .* = option"))


def models() -> list[str]:
    found = [path.parts[0] for path in _defining("edgeflock.common.models", "def make")]
    return sorted({*(name.replace("_", "-") for name in found), *installed("models")})


def tasks() -> list[str]:
    found = [path.parts[0] for path in _defining("edgeflock.common.tasks", "TASK")]
    return sorted({*(name.replace("_", "-") for name in found), *installed("tasks")})


def datasets() -> list[str]:
    from edgeflock.common.datasets.kit.registry import names

    return names()


def codecs() -> list[str]:
    whole = [name for name in NAMES if name != "topk"]
    return [*whole, *(f"{name}+zstd" for name in whole), "topk:0.01", "topk:0.01+zstd"]


def partitions() -> list[str]:
    from edgeflock.common.partitions.kit.registry import schemes

    return sorted({*schemes(), *installed("partitions")})


def _defining(package: str, what: str) -> list[Path]:
    """Return the modules below a package that define something at their top, without their endings."""
    spec = find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]
    found = ((path, path.relative_to(folder)) for folder in folders for path in folder.rglob("*.py"))
    text = re.compile(rf"^{what}\b", re.M)
    return [name.with_suffix("") for path, name in found if text.search(path.read_text("utf-8"))]
