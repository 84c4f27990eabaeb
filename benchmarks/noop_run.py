"""Runs that train nothing: clients fetch a model of an exact size and return it unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.live_run import Spec, Watched, watch

MODEL = "benchmarks.blob_model:factory"
WARM_UP = 4  # rounds until the files of earlier rounds are used again


def run(
    folder: Path,
    *,
    clients: int,
    mib: float,
    rounds: int,
    tensors: int = 1,
    sample_s: float = 0.5,
    limit_s: float = 240.0,
    at_server: tuple[str, ...] = (),
    at_clients: tuple[str, ...] = (),
) -> Watched:
    """Run it to its end under observation, with every client in a process of its own."""
    folder.mkdir(exist_ok=True)
    data = folder / "data.npz"
    np.savez(data, x=np.ones((8, 4), np.float32), y=np.arange(8) % 2)
    server = (
        *("--model", MODEL, "--model-arg", f"mib={mib}", "--model-arg", f"tensors={tensors}"),
        *("--eval-data", str(data), "--eval-every", "0", "--steps", "0", "--lr", "0"),
        *("--clients", str(clients), "--rounds", str(rounds), "--log-level", "warning", *at_server),
    )
    one = ("--model", MODEL, "--data", str(data), "--device", "cpu", "--log-level", "warning", *at_clients)
    started = tuple(("--id", f"c{number}", *one) for number in range(clients))
    return watch(folder, Spec(server, started, sample_s, limit_s))
