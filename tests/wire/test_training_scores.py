"""The global model on what the clients train on, in the rounds that are asked for and in the last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgeflock.common.datasets.kit import registry as datasets
from support.processes import flock

FLAGS = ("--model=logistic", "--clients=2", "--partition=dirichlet:0.5", "--seed=2", "--eval-train=2")


def test_the_training_loss_of_the_final_model_is_that_of_all_shards_together(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        server = made.server("--method=fedprox", "--rounds=3", "--eval-every=1", *FLAGS)
        client = made.client("c0,c1")
        assert [server.ended(), client.ended()] == [0, 0]
        query = "SELECT round, value, loss, samples FROM evaluations WHERE model = 'global-train'"
        found = {round: figures for round, *figures in made.rows(query)}
        (kept,) = [load_file(made.run_dir / "model.safetensors")]
    assert found.keys() == {2, 3}
    dataset = datasets.load("digits", None)
    x, y = dataset.ready(dataset.train).x.reshape(len(dataset.train.y), -1), dataset.train.y
    weight, bias = (vector for _, vector in sorted(kept.items(), key=lambda item: -item[1].ndim))
    logits = x @ weight.T.astype(np.float64) + bias
    logits -= logits.max(1, keepdims=True)
    accuracy, samples = np.mean(logits.argmax(1) == y), len(y)
    loss = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(samples), y])
    assert found[3] == [pytest.approx(accuracy), pytest.approx(loss, rel=1e-5), samples]
