"""Runs that train nothing: clients fetch a model of an exact size and return it unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.live_run import Spec, Watched, watch

MODEL = "benchmarks.blob_model:factory"
WARM_UP = 4  # rounds until the files of earlier rounds are used again


def spec(
    folder: Path, *, clients: int, mib: float, rounds: int, tensors: int = 1, sample_s: float = 0.5
) -> Spec:
    """Return a run with every client in a process of its own."""
    folder.mkdir(exist_ok=True)
    data = folder / "data.npz"
    np.savez(data, x=np.ones((8, 4), np.float32), y=np.arange(8) % 2)
    server = (
        *("--model", MODEL, "--model-arg", f"mib={mib}", "--model-arg", f"tensors={tensors}"),
        *("--eval-data", str(data), "--eval-every", "0", "--steps", "0", "--lr", "0"),
        *("--clients", str(clients), "--rounds", str(rounds), "--log-level", "warning"),
    )
    one = ("--model", MODEL, "--data", str(data), "--device", "cpu", "--log-level", "warning")
    return Spec(server, tuple(("--id", f"c{number}", *one) for number in range(clients)), sample_s)


def run(
    folder: Path, *, clients: int, mib: float, rounds: int, tensors: int = 1, sample_s: float = 0.5
) -> Watched:
    """Run it to its end under observation."""
    return watch(
        folder,
        spec(folder, clients=clients, mib=mib, rounds=rounds, tensors=tensors, sample_s=sample_s),
    )
