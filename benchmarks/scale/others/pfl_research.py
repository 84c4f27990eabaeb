"""Rounds of pfl-research in one process, with one step that costs nothing.

    python pfl_research.py CLIENTS ROUNDS ELEMENTS

Prints a line of JSON when a round is over: the seconds since the epoch, and how many clients answered.
"""

# pyright: reportMissingImports=false
# (these packages are in an environment of their own)

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

CLIENTS, ROUNDS, ELEMENTS = map(int, sys.argv[1:4])


class Blob(torch.nn.Module):
    """Parameters that are only there to be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = torch.nn.Parameter(torch.full((ELEMENTS,), 1e-3))

    def loss(self, x: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return (self.numbers[:1] * x).sum()

    def metrics(self, x: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {}


class Told(TrainingProcessCallback):  # type: ignore[misc]  # pfl is in an environment of its own
    """Says when a round is over."""

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        print(json.dumps({"at": time.time(), "answered": CLIENTS}), flush=True)
        return False, Metrics()


if __name__ == "__main__":
    torch.set_num_threads(1)
    blob = Blob()
    model = PyTorchModel(
        model=blob,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(blob.parameters(), 1.0),
    )
    turns = itertools.cycle(range(CLIENTS))
    data = FederatedDataset(lambda user: Dataset(raw_data=[torch.ones(1)]), lambda: next(turns))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=ROUNDS + 1,
            train_cohort_size=CLIENTS,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=0.0, local_batch_size=None
        ),
        callbacks=[Told()],
    )
