"""Which machine this is: a digest that tells a copy of its disk in another machine from the original."""

from __future__ import annotations

import hashlib
from pathlib import Path

_FILES = (  # what a board has of itself, then what its installation was given
    Path("/sys/firmware/devicetree/base/serial-number"),
    Path("/etc/machine-id"),
)


def machine_digest(files: tuple[Path, ...] = _FILES) -> str:
    """Return a digest of what identifies this machine; empty if nothing does."""
    said = [text for path in files if (text := _text(path))]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:32] if said else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip("\0 \n")
    except OSError:
        return ""
