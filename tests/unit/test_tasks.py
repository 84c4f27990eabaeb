"""Tasks by hand and by oracle: labels, losses, outputs that fit, and metrics from sums that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn import metrics as oracle
from torch import Tensor, nn

from edgeflock.common.errors import BadData, UnknownName
from edgeflock.common.scores import LOSS, Score
from edgeflock.common.tasks.kit import registry
from edgeflock.common.tasks.kit.base import IGNORED, LearningTask
from edgeflock.common.tasks.kit.marking import Marking, ScoreTally

NAMES = ["autoencoder", "classification", "multilabel", "next-token", "regression", "segmentation"]


class Given:
    """A model whose outputs are given."""

    def __init__(self, task: LearningTask) -> None:
        self.task = task

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.task.loss(logits, y)

    def sums(self, logits: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        return self.task.sums(logits, y)


def scored(task: LearningTask, outputs: Tensor, y: Tensor, sizes: list[int]) -> Score:
    """Return the score of a test in batches of these sizes."""
    tally = ScoreTally(Given(task))
    for one, labels in zip(torch.split(outputs, sizes), torch.split(y, sizes), strict=True):
        tally.add(one, labels)
    return Marking(task, task.metrics[0]).score(tally.samples, tally.loss, tally.sums)


def known(found: Score, task: LearningTask) -> dict[str, float]:
    return {task.metrics[0].name: found.value, **found.others}


def batch(name: str, outputs: int, count: int) -> tuple[LearningTask, Tensor, Tensor]:
    """Return a task with random outputs and labels."""
    draw = np.random.default_rng(7)
    task = registry.load(name)(outputs)
    y: NDArray[Any]
    x: NDArray[Any] = draw.normal(size=(count, outputs))
    if name == "classification":
        made, y = draw.normal(size=(count, outputs)), draw.integers(0, outputs, count)
    elif name == "multilabel":
        made, y = draw.normal(size=(count, outputs)), draw.integers(0, 2, (count, outputs))
    elif name == "segmentation":
        made, y = draw.normal(size=(count, outputs, 4, 5)), draw.integers(-1, outputs, (count, 4, 5))
    elif name == "next-token":
        x = draw.integers(0, outputs, (count, 6))
        made, y = draw.normal(size=(count, 6, outputs)), draw.integers(-1, outputs, (count, 6))
    else:
        made, y = draw.normal(size=(count, outputs)), draw.normal(size=(count, outputs))
    return task, torch.from_numpy(made).float(), task.tensors(x, y)[1]


def test_every_task_is_found_by_its_name_and_says_so() -> None:
    assert registry.names() == tuple(NAMES)
    assert [registry.load(name).name for name in NAMES] == NAMES
    assert all(registry.load(name)(3).metrics and registry.load(name).summary for name in NAMES)
    with pytest.raises(UnknownName, match="did you mean 'regression'"):
        registry.load("regresion")


@pytest.mark.parametrize("name", NAMES)
def test_sums_add_up_over_batches_and_devices_to_the_score_of_all(name: str) -> None:
    task, outputs, y = batch(name, 3, 30)
    whole = scored(task, outputs, y, [30])
    parts = [
        scored(task, outputs[cut], y[cut], [cut.stop - cut.start]) for cut in (slice(0, 4), slice(4, 30))
    ]
    for found in (scored(task, outputs, y, [7, 11, 12]), Marking(task, task.metrics[0]).together(parts)):
        assert known(found, task) == pytest.approx(known(whole, task), rel=1e-9)
        assert found.loss == pytest.approx(whole.loss, rel=1e-6)
        assert found.samples == 30
    assert set(known(whole, task)) == {metric.name for metric in task.metrics}


def test_classification_is_what_scikit_learn_says() -> None:
    task, outputs, y = batch("classification", 4, 50)
    said, found = outputs.argmax(1), scored(task, outputs, y, [20, 30])
    assert found.value == pytest.approx(oracle.accuracy_score(y, said))
    assert found.others["f1"] == pytest.approx(oracle.f1_score(y, said, average="macro"))
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, y)))


def test_two_classes_have_an_auc_as_fine_as_its_histogram() -> None:
    task, outputs, y = batch("classification", 2, 200)
    area = oracle.roc_auc_score(y, outputs[:, 1] - outputs[:, 0])
    assert scored(task, outputs, y, [200]).others["auc"] == pytest.approx(area, abs=0.005)
    one_class = scored(task, outputs, torch.zeros_like(y), [200])
    assert "auc" not in one_class.others  # nobody can tell


def test_regression_is_what_scikit_learn_says() -> None:
    task, outputs, y = batch("regression", 2, 40)
    found = known(scored(task, outputs, y, [13, 27]), task)
    assert found == {
        "mae": pytest.approx(oracle.mean_absolute_error(y, outputs)),
        "rmse": pytest.approx(oracle.mean_squared_error(y, outputs) ** 0.5),
        "r2": pytest.approx(oracle.r2_score(y, outputs)),
    }


def test_regression_by_hand() -> None:
    task = registry.load("regression")(1)
    y = task.tensors(np.zeros((3, 1)), np.array([1.0, 2.0, 6.0]))[1]
    found = scored(task, torch.tensor([2.0, 2.0, 3.0]), y, [3])
    assert known(found, task) == pytest.approx({"mae": 4 / 3, "rmse": (10 / 3) ** 0.5, "r2": 1 - 10 / 14})
    assert found.loss == pytest.approx(10 / 3)


def test_numbers_that_are_all_the_same_have_no_r2() -> None:
    task = registry.load("regression")(1)
    found = scored(task, torch.tensor([[2.0], [4.0]]), torch.full((2, 1), 3.0), [2])
    assert known(found, task) == {"mae": 1.0, "rmse": 1.0}


def test_multilabel_is_what_scikit_learn_says() -> None:
    task, outputs, y = batch("multilabel", 3, 100)
    found, said = known(scored(task, outputs, y, [50, 50]), task), outputs > 0
    assert found == {
        "f1_micro": pytest.approx(oracle.f1_score(y, said, average="micro")),
        "f1_macro": pytest.approx(oracle.f1_score(y, said, average="macro")),
        "label_accuracy": pytest.approx(float((said == (y > 0)).double().mean())),
        "auc": pytest.approx(oracle.roc_auc_score(y.flatten(), outputs.flatten()), abs=0.005),
    }


def test_segmentation_is_what_scikit_learn_says() -> None:
    task, outputs, y = batch("segmentation", 3, 10)
    there, said = y[y != IGNORED], outputs.argmax(1)[y != IGNORED]
    found = known(scored(task, outputs, y, [4, 6]), task)
    assert found == {
        "iou": pytest.approx(oracle.jaccard_score(there, said, average="macro")),
        "dice": pytest.approx(oracle.f1_score(there, said, average="macro")),
        "pixel_accuracy": pytest.approx(oracle.accuracy_score(there, said)),
    }


def test_the_autoencoder_s_quantiles_are_those_of_its_errors() -> None:
    task = registry.load("autoencoder")(4)
    y = torch.randn(500, 4, generator=torch.Generator().manual_seed(1))
    errors = y.double().square().mean(1).numpy()  # of a model that gives zeros
    found = known(scored(task, torch.zeros(500, 4), y, [256, 244]), task)
    assert found["error"] == pytest.approx(errors.mean())
    for share, name in ((50, "error_p50"), (95, "error_p95"), (99, "error_p99")):
        assert found[name] == pytest.approx(np.percentile(errors, share), rel=0.05)


def test_the_autoencoder_s_labels_are_the_samples_themselves() -> None:
    x, y = registry.load("autoencoder")(4).tensors(np.ones((2, 4), np.float32), np.zeros((2, 0)))
    assert x is y


def test_next_token_by_hand() -> None:
    task = registry.load("next-token")(2)
    outputs = torch.tensor([[[0.0, 0.0], [math.log(3.0), 0.0], [9.0, 0.0]]])
    found = scored(task, outputs, torch.tensor([[1, 0, IGNORED]]), [1])
    mean = (math.log(2) + math.log(4 / 3)) / 2
    assert found.loss == pytest.approx(mean)
    assert known(found, task) == pytest.approx({"perplexity": math.exp(mean), "accuracy": 0.5})


def test_next_token_without_labels_asks_for_the_next_of_its_own() -> None:
    x, y = registry.load("next-token")(9).tensors(np.array([[3, 1, 4]], np.uint8), np.zeros((1, 0)))
    assert (x.dtype, x.tolist(), y.tolist()) == (torch.int64, [[3, 1, 4]], [[1, 4, IGNORED]])


def test_padding_weighs_nothing_in_loss_and_gradient() -> None:
    task = registry.load("next-token")(2)
    outputs = torch.zeros(2, 3, 2, requires_grad=True)
    loss = task.loss(outputs, torch.full((2, 3), IGNORED))
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
    assert outputs.grad is not None
    assert (float(loss.detach()), float(outputs.grad.abs().sum())) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "outputs", "y", "words"),
    [
        (
            "classification",
            3,
            np.array([0.5]),
            "one whole number per sample; --task regression takes numbers",
        ),
        ("classification", 3, np.array([3]), "labels go up to 3, this run has 3 classes: 0 to 2"),
        ("classification", 3, np.array([-1]), "y has the label -1, allowed are 0 and above"),
        ("classification", 3, np.zeros((1, 2), int), "one whole number per sample"),
        ("regression", 1, np.zeros((2, 2)), "y has 2 numbers for each sample, this run has 1"),
        ("regression", 1, np.array([1.0, np.nan]), "not a finite number in sample 1"),
        ("regression", 1, np.zeros((2, 0)), "needed are numbers for each sample"),
        ("multilabel", 2, np.array([[0, 2]]), "y has the value 2, allowed are 0 and 1"),
        ("segmentation", 2, np.zeros((1, 4), int), "a whole number per pixel"),
        ("segmentation", 2, np.full((1, 4, 4), 2), "labels go up to 2, this run has 2 classes"),
        ("next-token", 2, np.array([1]), "a whole number per position"),
        ("next-token", 2, np.array([[2]]), "labels go up to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_a_sentence(
    name: str, outputs: int, y: NDArray[Any], words: str
) -> None:
    with pytest.raises(BadData) as caught:
        registry.load(name)(outputs).labels(y)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "x", "y", "outputs"),
    [
        ("classification", (3, 4), np.array([0, 2, 1]), 3),
        ("regression", (3, 4), np.zeros(3), 1),
        ("regression", (3, 4), np.zeros((3, 2)), 2),
        ("multilabel", (3, 4), np.zeros((3, 5)), 5),
        ("segmentation", (3, 1, 2, 2), np.array([[[0, 1], [1, 255]]] * 3, np.uint8), 2),
        ("autoencoder", (3, 1, 2, 2), np.zeros((3, 0)), 4),
        ("next-token", (3, 4), np.full((3, 4), 6), 7),
    ],
)
def test_the_data_say_how_many_outputs_there_are(
    name: str, x: tuple[int, ...], y: NDArray[Any], outputs: int
) -> None:
    task = registry.load(name)(0)
    assert task.count(np.zeros(x, int), y) == outputs


@pytest.mark.parametrize(
    ("name", "shape", "fits", "misfits"),
    [
        ("classification", (4,), (1, 3), (1, 16)),
        ("regression", (4,), (1, 3), (1, 1)),
        ("multilabel", (4,), (1, 3), (3,)),
        ("segmentation", (1, 8, 8), (1, 3, 8, 8), (1, 3)),
        ("autoencoder", (3,), (1, 3), (1, 2)),
        ("next-token", (5,), (1, 5, 3), (1, 3)),
    ],
)
def test_outputs_that_are_not_the_task_s_are_told(
    name: str, shape: tuple[int, ...], fits: tuple[int, ...], misfits: tuple[int, ...]
) -> None:
    task = registry.load(name)(3)
    assert task.misfit(fits, shape) == ""
    assert task.misfit(misfits, shape).count("for each sample") == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_what_the_task_itself_takes(name: str) -> None:
    task = registry.load(name)(3)
    shape = (1, 4, 4) if name == "segmentation" else (3,)
    x, y = task.example(shape, 2)
    outputs = {
        "segmentation": torch.zeros(2, 3, 4, 4),
        "next-token": torch.zeros(2, 3, 3),
    }.get(name, torch.zeros(2, 3))
    assert x.shape == (2, *shape)
    assert math.isfinite(float(task.loss(outputs, y)))
    assert task.sums(outputs, y)


def test_a_figure_that_is_no_number_is_the_worst_there_is() -> None:
    task, outputs, y = batch("regression", 1, 4)
    broken = scored(task, outputs * math.nan, y, [4])
    assert (broken.value, broken.loss, broken.others) == (math.inf, math.inf, {})


def test_the_loss_may_be_the_figure() -> None:
    task, outputs, y = batch("classification", 3, 9)
    tally = ScoreTally(Given(task))
    tally.add(outputs, y)
    found = Marking(task, LOSS).score(9, tally.loss, tally.sums)
    assert (found.value, set(found.others)) == (tally.loss, {"accuracy", "f1"})


def test_one_model_on_several_devices_is_judged_by_their_sums_together() -> None:
    task, outputs, y = batch("regression", 1, 30)
    marking = Marking(task, task.metrics[0])
    parts = [scored(task, outputs[:10], y[:10], [10]), scored(task, outputs[10:], y[10:], [20])]
    found, whole = marking.pooled(parts), scored(task, outputs, y, [30])
    assert found.value == pytest.approx(whole.value)
    assert found.others == pytest.approx(whole.others)
    assert (found.members, found.samples) == (2, 30)
    assert found.worst_tenth == max(part.value for part in parts), "less is better"
