"""The data root where none is given: a folder of the user's cache, made when there is a file for it."""

from __future__ import annotations

import os
from pathlib import Path

from edgeflock.common.errors import MissingData


def default_root() -> Path:
    """Return `$XDG_CACHE_HOME/edgeflock`, or `~/.cache/edgeflock`. Raises MissingData without a home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # by its specification a relative path is to be ignored
        return Path(given) / "edgeflock"
    try:
        return Path.home() / ".cache" / "edgeflock"
    except RuntimeError:
        raise MissingData(
            "this user has no home directory for data sets: give --data-root, or set XDG_CACHE_HOME"
        ) from None
