"""multilabel: any number of labels for each sample; binary cross entropy of each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.common.errors import BadData
from edgeflock.common.scores import Metric, Sums
from edgeflock.common.tasks.kit import histogram
from edgeflock.common.tasks.kit.base import Array, LearningTask, mean_f1, ratio


class Multilabel(LearningTask):
    """y is rows of 0 and 1, one column for each label; an output above 0 says yes."""

    name = "multilabel"
    summary = "any of several labels for each sample; F1, accuracy of each label, AUC"
    chooses = True
    metrics = (Metric("f1_micro"), Metric("f1_macro"), Metric("label_accuracy"), Metric("auc"))

    def labels(self, y: Array) -> Array:
        found = super().labels(y)
        odd = (found != 0) & (found != 1)
        if odd.any():
            raise BadData(f"y has the value {found[odd][0]:g}, allowed are 0 and 1 for each label")
        return found

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, y)

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs > 0

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        said, there = outputs > 0, y > 0.5
        negative, positive = histogram.of_chances(outputs.cpu(), there.cpu())
        return {
            "hits": (said == there).sum(),
            "right": (said & there).sum(0),
            "guessed": said.sum(0),
            "actual": there.sum(0),
            "negative": negative,
            "positive": positive,
        }

    def values(self, sums: Sums) -> Mapping[str, float]:
        right, guessed, actual = (np.asarray(sums[name], float) for name in ("right", "guessed", "actual"))
        found = {
            "f1_micro": ratio(2 * float(right.sum()), float(guessed.sum() + actual.sum())),
            "f1_macro": mean_f1(right, guessed, actual),
            "label_accuracy": ratio(sums["hits"][0], sums["samples"][0] * len(right)),
        }
        if (area := histogram.auc(sums["negative"], sums["positive"])) is not None:
            found["auc"] = area
        return found


TASK = Multilabel
