"""What a finished run with real processes has left: the server's vectors, and those of every client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from support.hand_mlp import Vector


def server_vector(folder: Path, name: str) -> Vector:
    """Return a vector of the newest checkpoint."""
    newest = max((folder / "run" / "rounds").glob("[0-9]*"))
    return load_file(newest / "state.safetensors")[name].astype(np.float64)


def client_vectors(folder: Path, name: str) -> list[Vector]:
    """Return the vector of that name from the last state of every client."""
    last: dict[Path, Path] = {}
    for path in sorted(folder.glob("clients/*/clients/*/runs/*/state-*.safetensors")):
        last[path.parent] = path  # by round, ascending
    return [load_file(path)[name].astype(np.float64) for path in last.values()]
