"""What is said of a task before anything starts: models, methods, classes and clients that do not fit it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgeflock.common.errors import BadData, BadValue, UnknownName, UsageError
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.models.kit.registry import build
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.reason import Reason
from edgeflock.common.run import ModelDescription, RunDescription
from edgeflock.common.tasks.kit.registry import load as task_of
from edgeflock.server.config import ServerConfig
from edgeflock.server.service.join import check_ready
from edgeflock.server.start.resolve import combine, resolve
from edgeflock.server.start.samples import load_test_set
from edgeflock.v1 import aggregator_pb2 as pb


def test_a_model_with_more_or_fewer_outputs_than_classes_is_refused() -> None:
    with pytest.raises(BadValue) as refused:
        adapt(nn.Linear(4, 16), (4,), "mine:make", task_of("classification")(10))
    assert str(refused.value) == (
        "--model is 'mine:make', allowed is for --task classification a model that gives 10 outputs for each "
        "sample, one for every class, not 16"
    )


def test_a_model_of_the_package_is_refused_for_a_task_that_its_outputs_do_not_fit() -> None:
    with pytest.raises(BadValue, match="for --task segmentation a model that gives 2x8x8 for each sample"):
        build("mlp", input_shape=(1, 8, 8), classes=2, seed=1, task=task_of("segmentation")(2))
    with pytest.raises(BadValue, match="for --task regression another model: it is for classification"):
        build("svm", input_shape=(4,), classes=1, seed=1, task=task_of("regression")(1))


class Words(nn.Module):
    """Classifies tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.table(x).mean(1))
        return made


def test_a_model_that_takes_no_floats_is_given_whole_numbers() -> None:
    net = adapt(Words(), (6,), "mine:make", task_of("classification")(2))
    x, _ = net.task.tensors(np.ones((3, 6), np.uint8), np.zeros(3, np.int64), tokens=net.tokens)
    assert (net.tokens, x.dtype, net(x)[1].shape) == (True, torch.int64, (3, 2))


@pytest.mark.parametrize("method", ["fedtr", "fedntd", "pfedmo"])
def test_a_method_that_needs_classes_says_so(method: str) -> None:
    with pytest.raises(UsageError, match=f"^{method} .*: --task regression has no class for each sample$"):
        resolve(ServerConfig(method=method, task="regression"))


def test_names_of_tasks_and_metrics_are_checked_before_anything_starts() -> None:
    with pytest.raises(UnknownName, match="unknown task 'regresion': did you mean 'regression'"):
        resolve(ServerConfig(task="regresion"))
    with pytest.raises(UnknownName, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        resolve(ServerConfig(watch="acuracy"))
    with pytest.raises(UnknownName, match=r"unknown target 'accuracy'.*known are loss, mae, r2, rmse"):
        resolve(ServerConfig(task="regression", target={"accuracy": "0.5"}))
    with pytest.raises(UsageError, match="--augment changes pictures alone"):
        resolve(ServerConfig(task="segmentation", augment="flip"))


def test_classes_may_be_more_than_the_data_of_the_server_show_and_not_fewer(tmp_path: Path) -> None:
    np.savez(tmp_path / "eval.npz", x=np.zeros((4, 3), np.float32), y=np.array([0, 1, 2, 1]))
    given = {"eval_data": tmp_path / "eval.npz"}
    assert load_test_set(combine(given)).classes == 3
    assert load_test_set(combine({**given, "classes": 5})).classes == 5
    with pytest.raises(BadValue, match="--classes is 2, allowed is at least 3, which the data show"):
        load_test_set(combine({**given, "classes": 2}))
    with pytest.raises(BadData, match=r"eval.npz: y has the value 2, allowed are 0 and 1"):
        load_test_set(combine({**given, "task": "multilabel"}))


def test_without_data_the_server_is_told_what_a_sample_looks_like() -> None:
    found = load_test_set(combine({"input_shape": "3x8x8", "classes": 4}))
    assert (found.input_shape, found.classes, len(found.y)) == ((3, 8, 8), 4, 0)
    with pytest.raises(
        UsageError, match="--input-shape alone does not say how many outputs classification has"
    ):
        combine({"input_shape": "3x8x8"})
    with pytest.raises(UsageError, match="--dataset says it already"):
        combine({"input_shape": "3x8x8", "classes": 4, "dataset": "digits"})


def test_tests_on_devices_need_evaluations_and_devices() -> None:
    for asked in ({"eval_devices": True}, {"stop_after": 3}, {"eval_clients": "local"}):
        with pytest.raises(UsageError, match="needs evaluations: --eval-every is 0"):
            combine({**asked, "eval_every": 0})
    with pytest.raises(UsageError, match="centralized has no clients: --eval-devices has nobody to ask"):
        combine({"method": "centralized", "eval_devices": True})


def test_a_client_too_old_for_the_task_is_refused() -> None:
    layouts = ModelLayouts(Layout.single("w", 3))
    model = ModelDescription("mlp", (3,), 1, task="regression")
    run = RunDescription("r", 0, 0, "fedavg", {}, model, layouts, None, 2)
    report = pb.Ready(samples=5, layout_digest=layouts.parameters.digest)
    refused = check_ready(report, run)
    assert refused is not None
    assert (refused.reason, "of the task regression" in refused.sentence) == (Reason.VERSION, True)
    report.task = "regression"
    assert check_ready(report, run) is None
