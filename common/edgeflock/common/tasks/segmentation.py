"""segmentation: a class for each pixel; cross entropy over the pixels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from numpy.typing import NDArray
from torch import Tensor

from edgeflock.common.errors import BadData
from edgeflock.common.scores import Metric, Sums
from edgeflock.common.tasks.kit.base import IGNORED, Array, LearningTask, Shape, ratio, whole, within, words

_NO_CLASS = 255  # in a mask of bytes


class Segmentation(LearningTask):
    """IoU and Dice as means over the classes that occur or were said; pixels of no class count nowhere."""

    name = "segmentation"
    summary = "a class for each pixel; IoU, Dice and pixel accuracy"
    chooses = True
    metrics = (Metric("iou"), Metric("dice"), Metric("pixel_accuracy"))
    flippable = False

    def labels(self, y: Array) -> Array:
        return within(self._masks(y), self.outputs, least=IGNORED)

    def count(self, x: Array, y: Array) -> int:
        return int(self._masks(y).max(initial=0)) + 1

    def _masks(self, y: Array) -> NDArray[np.int64]:
        wanted = "a whole number per pixel, samples x height x width"
        found = whole(y[:, 0] if y.ndim == 4 and y.shape[1] == 1 else y, wanted)
        if found.ndim != 3:
            raise BadData(f"y is {y.dtype} of shape {words(y.shape)}, needed is {wanted}")
        if y.dtype == np.uint8:
            found[found == _NO_CLASS] = IGNORED
        found[found < 0] = IGNORED
        return found

    def example(self, shape: Shape, count: int = 1, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        x, _ = super().example(shape, count, tokens=tokens)
        return x, torch.zeros(count, *shape[-2:], dtype=torch.int64)

    def misfit(self, outputs: Shape, shape: Shape) -> str:
        wanted = (1, self.outputs, *shape[-2:])
        sides = words(wanted[1:])
        return "" if outputs == wanted else f"{sides} for each sample, a number for every class and pixel"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        total = F.cross_entropy(outputs, y, ignore_index=IGNORED, reduction="sum")
        return total / (y != IGNORED).sum().clamp_min(1)

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    def weight(self, y: Tensor) -> int:
        return int((y != IGNORED).sum())

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        known = y != IGNORED
        said, there = outputs.argmax(1)[known], y[known]
        return {
            "right": torch.bincount(there[said == there], minlength=self.outputs),
            "guessed": torch.bincount(said, minlength=self.outputs),
            "actual": torch.bincount(there, minlength=self.outputs),
        }

    def values(self, sums: Sums) -> Mapping[str, float]:
        right, said, there = (np.asarray(sums[name], float) for name in ("right", "guessed", "actual"))
        known = said + there > 0
        right_known, both = right[known], (said + there)[known]
        return {
            "iou": float((right_known / (both - right_known)).mean()) if known.any() else 0.0,
            "dice": float((2 * right_known / both).mean()) if known.any() else 0.0,
            "pixel_accuracy": ratio(float(right.sum()), float(there.sum())),
        }


TASK = Segmentation
