"""mlp: fully connected layers with ReLU, 784-100-10 by default (McMahan's and FedTrip's small model)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.models.kit.arguments import share, sizes
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout
from edgeflock.common.models.kit.shapes import Shape
from edgeflock.common.tasks.classification import Classification

ARGUMENTS = {"hidden": sizes("100"), "dropout": share(0.0)}


class Mlp(Net):
    """Any input, flattened; any number of hidden layers."""

    def __init__(self, shape: Shape, classes: int, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        widths = (math.prod(shape), *hidden)
        layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.hidden = cast("Sequence[nn.Linear]", layers)
        self.dropout = SeededDropout(dropout) if dropout else None
        self.features = widths[-1]
        self.head = nn.Linear(self.features, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.flatten(1)
        for layer in self.hidden:
            x = F.relu(F.linear(x, layer.weight, layer.bias), inplace=True)  # a module's call costs 2 us
            if self.dropout is not None:
                x = self.dropout(x)
        return x, F.linear(x, self.head.weight, self.head.bias)

    @torch.no_grad()
    def gradient_by_hand(self, x: Tensor, y: Tensor, out: Sequence[Tensor]) -> Tensor | None:
        """Back-propagation written out: autograd's kernels and bits without its fifth of the step."""
        if self.dropout is not None or type(self) is not Mlp:  # a derived class may have another loss
            return None
        if type(self.task) is not Classification:
            return None
        inputs = [x.flatten(1)]
        for layer in self.hidden:
            inputs.append(F.relu(F.linear(inputs[-1], layer.weight, layer.bias), inplace=True))
        chances = F.log_softmax(F.linear(inputs[-1], self.head.weight, self.head.bias), 1)
        loss = F.nll_loss(chances, y)
        picked = torch.zeros_like(chances).scatter_(1, y.unsqueeze(1), -1 / y.shape[0])  # d loss / d chances
        direction = torch.ops.aten._log_softmax_backward_data(picked, chances, 1, chances.dtype)
        layers = (*self.hidden, self.head)
        for place in range(len(layers) - 1, -1, -1):
            torch.mm(direction.t(), inputs[place], out=out[2 * place])
            torch.sum(direction, 0, out=out[2 * place + 1])
            if place:
                direction = torch.mm(direction, layers[place].weight).mul_(inputs[place] > 0)
        return loss


def make(shape: Shape, classes: int, *, hidden: tuple[int, ...], dropout: float) -> Net:
    return Mlp(shape, classes, hidden, dropout)
