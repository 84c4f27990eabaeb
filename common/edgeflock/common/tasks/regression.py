"""regression: one or more numbers for each sample; mean squared error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.common.scores import Metric, Sums
from edgeflock.common.tasks.kit.base import LearningTask, Shape, ratio


class Regression(LearningTask):
    """MAE and RMSE over all numbers; R2 as the mean over the outputs."""

    name = "regression"
    summary = "one or more numbers for each sample; MAE, RMSE and R2"
    metrics = (
        Metric("mae", higher=False, share=False),
        Metric("rmse", higher=False, share=False),
        Metric("r2", share=False),
    )

    def misfit(self, outputs: Shape, shape: Shape) -> str:
        if outputs == (1,) and self.outputs == 1:
            return ""
        return super().misfit(outputs, shape)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(outputs.view_as(y), y)

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        y = y.cpu().double()
        apart = outputs.cpu().double().view_as(y) - y
        return {
            "absolute": apart.abs().sum(),
            "square": apart.square().sum(0),
            "y": y.sum(0),
            "y_square": y.square().sum(0),
        }

    def values(self, sums: Sums) -> Mapping[str, float]:
        count, outputs = sums["samples"][0], len(sums["y"])
        square, y, y_square = (np.asarray(sums[name], float) for name in ("square", "y", "y_square"))
        found = {
            "mae": ratio(sums["absolute"][0], count * outputs),
            "rmse": ratio(float(square.sum()), count * outputs) ** 0.5,
        }
        around = y_square - y * y / max(count, 1.0)  # of the numbers about their mean
        if (around > 1e-12 * y_square).all():
            found["r2"] = float((1 - square / around).mean())
        return found


TASK = Regression
