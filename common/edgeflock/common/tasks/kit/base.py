"""What a task is: what x and y may be, what the model's outputs are, the loss, and metrics from sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from edgeflock.common.errors import BadData
from edgeflock.common.scores import Metric, Sums

Array = NDArray[Any]
Shape = tuple[int, ...]

IGNORED = -100  # a label that counts nowhere, torch's own value for it; data say any number below 0


class LearningTask:
    """One run's task, the same at both ends; made as `TASK(outputs)`.

    `outputs` is the number of classes, or of numbers that the model is to give. What a task of your own
    leaves as it is here fits numbers as labels: y is floats, as many for each sample as there are outputs.
    """

    name = ""  #: what `--task` calls it
    summary = ""  #: one line for people
    metrics: tuple[Metric, ...] = ()  #: the first is what a run is judged by, unless `--watch` says another
    tokens = False  #: x is whole numbers and stays so; bytes are none of a picture
    chooses = False  #: its answers are choices, of classes or of yes and no, and no amounts
    classes = False  #: every sample is of one class, which some methods need
    flippable = True  #: y stays right when a picture is mirrored or cropped

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs

    # ---------------------------------------------------------------------------------- the data

    def labels(self, y: Array) -> Array:
        """Return the labels of some samples as they are trained on; raises BadData with a sentence."""
        found = numbers(y)
        if found.shape[1] != self.outputs:
            raise BadData(f"y has {found.shape[1]} numbers for each sample, this run has {self.outputs}")
        return found

    def count(self, x: Array, y: Array) -> int:
        """Return how many outputs the data ask for; raises BadData."""
        return int(numbers(y).shape[1])

    def asked_by(self, shape: Shape) -> int:
        """Return how many outputs the shape of a sample alone asks for, 0 if it does not tell."""
        return 0

    def tensors(self, x: Array, y: Array, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        """Return samples and labels as model and loss are given them; raises BadData with a sentence.

        `tokens`: the model takes whole numbers, whatever the task.
        """
        return self.inputs(x, tokens=tokens), torch.from_numpy(self.labels(y))

    def inputs(self, x: Array, *, tokens: bool = False) -> Tensor:
        """Return samples as the model is given them."""
        kind = np.int64 if self.tokens or tokens else np.float32
        return torch.from_numpy(np.ascontiguousarray(x, kind))

    def example(self, shape: Shape, count: int = 1, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        """Return samples of nothing, and labels for them: with them a model is tried before it is used."""
        x = torch.zeros(count, *shape, dtype=torch.int64 if self.tokens or tokens else torch.float32)
        return x, torch.zeros(count, self.outputs)

    # ---------------------------------------------------------------------------------- the model

    def misfit(self, outputs: Shape, shape: Shape) -> str:
        """Return what is needed in place of outputs for one sample of a shape, or nothing if they fit."""
        wanted = (1, self.outputs)
        return "" if outputs == wanted else f"{self.outputs} numbers for each sample"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over the batch."""
        raise NotImplementedError

    def answer(self, outputs: Tensor) -> Tensor:
        """Return what the model's outputs mean to people: here the numbers themselves."""
        return outputs

    def weight(self, y: Tensor) -> int:
        """Return over how many labels the mean loss of a batch is: its samples, or what is not padding."""
        return len(y)

    # ---------------------------------------------------------------------------------- the metrics

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Return what adds up over batches and devices, numbers or vectors; the metrics follow from it."""
        return {}

    def values(self, sums: Sums) -> Mapping[str, float]:
        """Return the metrics by their names; one that is not known is left out."""
        return {}


def whole(y: Array, wanted: str, hint: str = "") -> NDArray[np.int64]:
    """Return labels as whole numbers; raises BadData if they are none."""
    if 0 in y.shape[1:]:
        raise BadData(f"there are no labels (y), needed is {wanted}")
    if y.dtype.kind == "b":
        y = y.astype(np.uint8)
    if y.dtype.kind not in "iu":
        raise BadData(f"y is {y.dtype} of shape {words(y.shape)}, needed is {wanted}{hint}")
    if len(y) and int(y.max(initial=0)) > np.iinfo(np.int32).max:
        raise BadData(f"y has the label {y.max()}, allowed are labels below 2^31")
    return y.astype(np.int64)


def numbers(y: Array) -> NDArray[np.float32]:
    """Return labels as finite floats, a row for each sample; raises BadData if they are none."""
    if 0 in y.shape[1:]:
        raise BadData("there are no labels (y), needed are numbers for each sample")
    if y.dtype.kind not in "fiub":
        raise BadData(f"y is {y.dtype} of shape {words(y.shape)}, needed are numbers for each sample")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is refused below
        found = np.ascontiguousarray(y, np.float32).reshape(len(y), -1 if len(y) else math.prod(y.shape[1:]))
    if not np.isfinite(found).all():
        row = int(np.argmin(np.isfinite(found).all(axis=1)))
        raise BadData(f"y has a value that is not a finite number in sample {row}")
    return found


def within(labels: NDArray[np.int64], classes: int, *, least: int = 0) -> NDArray[np.int64]:
    """Return labels if they are those of so many classes; raises BadData."""
    if labels.size and int(labels.max()) >= classes:
        raise BadData(f"labels go up to {labels.max()}, this run has {classes} classes: 0 to {classes - 1}")
    if labels.size and int(labels.min()) < least:
        raise BadData(f"y has the label {labels.min()}, allowed are 0 and above")
    return labels


def ratio(above: float, below: float) -> float:
    """Return a quotient, 0 of nothing."""
    return above / below if below else 0.0


def mean_f1(right: ArrayLike, guessed: ArrayLike, actual: ArrayLike) -> float:
    """Return 2 right / (guessed + actual), as the mean over the classes that were guessed or occur."""
    hits, both = np.asarray(right, float), np.asarray(guessed, float) + np.asarray(actual, float)
    known = both > 0
    return float((2 * hits[known] / both[known]).mean()) if known.any() else 0.0


def words(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "()"
