"""classification: one class for each sample; cross entropy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.common.errors import BadData
from edgeflock.common.scores import ACCURACY, Metric, Sums
from edgeflock.common.tasks.kit import histogram
from edgeflock.common.tasks.kit.base import Array, LearningTask, Shape, mean_f1, ratio, whole, within, words

MOST_F1 = 256  # classes up to which each is counted apart


class Classification(LearningTask):
    """Accuracy; F1 as the mean over the classes that occur, and with two classes the AUC, too."""

    name = "classification"
    summary = "one class for each sample; accuracy, F1 and, of two classes, AUC"
    chooses = True
    classes = True

    def __init__(self, outputs: int) -> None:
        super().__init__(outputs)
        f1 = (Metric("f1"),) if self._counts else ()
        self.metrics = (ACCURACY, *f1, *((Metric("auc"),) if outputs == 2 else ()))

    @property
    def _counts(self) -> bool:
        """Whether classes are counted apart."""
        return 0 < self.outputs <= MOST_F1

    def labels(self, y: Array) -> Array:
        return within(self._whole(y), self.outputs)

    def count(self, x: Array, y: Array) -> int:
        return int(self._whole(y).max(initial=0)) + 1

    def _whole(self, y: Array) -> Array:
        wanted = "one whole number per sample"
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        hint = "; --task regression takes numbers" if y.dtype.kind == "f" else ""
        found = whole(y, wanted, hint)
        if found.ndim != 1:
            raise BadData(f"y is {y.dtype} of shape {words(y.shape)}, needed is {wanted}")
        if len(found) and found.min() < 0:
            raise BadData(f"y has the label {found.min()}, allowed are 0 and above")
        return found

    def example(self, shape: Shape, count: int = 1, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        x, _ = super().example(shape, count, tokens=tokens)
        return x, torch.zeros(count, dtype=torch.int64)

    def misfit(self, outputs: Shape, shape: Shape) -> str:
        wanted = (1, self.outputs)
        return "" if outputs == wanted else f"{self.outputs} outputs for each sample, one for every class"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs, y)

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        guessed = outputs.argmax(1)
        right = guessed == y
        found = {"hits": right.sum()}
        if self._counts:
            found["right"] = torch.bincount(y[right], minlength=self.outputs)
            found["guessed"] = torch.bincount(guessed, minlength=self.outputs)
            found["actual"] = torch.bincount(y, minlength=self.outputs)
        if self.outputs == 2:
            odds = outputs[:, 1] - outputs[:, 0]
            found["negative"], found["positive"] = histogram.of_chances(odds, y == 1)
        return found

    def values(self, sums: Sums) -> Mapping[str, float]:
        found = {"accuracy": ratio(sums["hits"][0], sums["samples"][0])}
        if "right" in sums:
            found["f1"] = mean_f1(sums["right"], sums["guessed"], sums["actual"])
        if "positive" in sums and (area := histogram.auc(sums["negative"], sums["positive"])) is not None:
            found["auc"] = area
        return found


TASK = Classification
