"""What there is by name, for completion; no module is imported for it, for each would bring torch along."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from edgeflock.common.choice import NAMES


def methods() -> list[str]:
    return _defining("edgeflock.methods", "METHOD")


def models() -> list[str]:
    return _defining("edgeflock.common.models", "def make")


def datasets() -> list[str]:
    from edgeflock.common.datasets import names

    return names()


def codecs() -> list[str]:
    whole = [name for name in NAMES if name != "topk"]
    return [*whole, *(f"{name}+zstd" for name in whole), "topk:0.01", "topk:0.01+zstd"]


def partitions() -> list[str]:
    from edgeflock.common.partitions import schemes

    return sorted(schemes())


def _defining(package: str, what: str) -> list[str]:
    """Return the modules of a package that define something at their top."""
    spec = find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or ()
    files = (path for folder in folders for path in Path(folder).glob("*.py"))
    return sorted(path.stem for path in files if re.search(rf"^{what}\b", path.read_text("utf-8"), re.M))
