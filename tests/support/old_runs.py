"""Runs that earlier edgeflocks have begun, as support.parked_run recorded them."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "data" / "runs"
NAMES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in _FOLDER.glob("*.tar.xz")))
_ENDED = ("v6-last-round", "v7-ended")
PARKED = tuple(name for name in NAMES if name not in _ENDED)  # in their second round of three


@dataclass(frozen=True)
class OldRun:
    """One of them, in a folder of its own."""

    run_dir: Path
    sha256: str  # of the model of the same run undisturbed

    @property
    def journal(self) -> Path:
        return self.run_dir / "journal.sqlite"


def unpack(name: str, folder: Path) -> OldRun:
    """Put a run into a folder, with the state of its clients where that was recorded."""
    with tarfile.open(_FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return OldRun(folder / "run", json.loads((folder / "recorded.json").read_text())["sha256"])
