"""next-token: a token for each position of a sequence; cross entropy over the positions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from numpy.typing import NDArray
from torch import Tensor

from edgeflock.common.errors import BadData
from edgeflock.common.scores import ACCURACY, Metric, Sums
from edgeflock.common.tasks.kit.base import IGNORED, Array, LearningTask, Shape, ratio, whole, within, words

_WANTED = "a whole number per position, samples x positions"


class NextToken(LearningTask):
    """x is samples x positions of tokens; y the same, a position on (what x itself says if there is none).

    A label below 0 is padding and counts nowhere. The model gives positions x tokens for each sample.
    """

    name = "next-token"
    summary = "a token for each position of a sequence; perplexity and accuracy"
    chooses = True
    metrics = (Metric("perplexity", higher=False, share=False), ACCURACY)
    tokens = True
    flippable = False

    def labels(self, y: Array) -> Array:
        if y.shape[1:] == (0,):  # none: x says them
            return y
        return within(self._padded(y), self.outputs, least=IGNORED)

    def count(self, x: Array, y: Array) -> int:
        highest = self._padded(y).max(initial=0) if y.size else 0
        return int(max(x.max(initial=0), highest)) + 1

    def tensors(self, x: Array, y: Array, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        if x.dtype.kind not in "iu" or x.ndim != 2:
            found = f"{x.dtype} of shape {words(x.shape)}"
            raise BadData(f"x is {found}, needed are whole numbers, samples x positions: the tokens")
        known = self._padded(x)
        if known.size and not 0 <= int(x.min()) <= int(x.max()) < self.outputs:
            raise BadData(f"x has tokens from {x.min()} to {x.max()}, this run has 0 to {self.outputs - 1}")
        if y.size or not known.size:
            return self.inputs(x), torch.from_numpy(self.labels(y.reshape(known.shape)))
        following = np.full_like(known, IGNORED)
        following[:, :-1] = known[:, 1:]
        return self.inputs(x), torch.from_numpy(following)

    def _padded(self, y: Array) -> NDArray[np.int64]:
        found = whole(y, _WANTED)
        if found.ndim != 2:
            raise BadData(f"y is {y.dtype} of shape {words(y.shape)}, needed is {_WANTED}")
        found[found < 0] = IGNORED
        return found

    def example(self, shape: Shape, count: int = 1, *, tokens: bool = False) -> tuple[Tensor, Tensor]:
        x, _ = super().example(shape, count)
        return x, torch.zeros_like(x)

    def misfit(self, outputs: Shape, shape: Shape) -> str:
        wanted = (1, *shape, self.outputs)
        sides = words(wanted[1:])
        return "" if outputs == wanted else f"{sides} for each sample, a number for every position and token"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        scores, wanted = outputs.flatten(0, -2), y.flatten()
        total = F.cross_entropy(scores, wanted, ignore_index=IGNORED, reduction="sum")
        return total / (y != IGNORED).sum().clamp_min(1)

    def answer(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def weight(self, y: Tensor) -> int:
        return int((y != IGNORED).sum())

    def sums(self, outputs: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        known = y != IGNORED
        chances = F.cross_entropy(outputs[known], y[known], reduction="none")
        return {
            "surprise": chances.cpu().double().sum(),
            "hits": (outputs.argmax(-1)[known] == y[known]).sum(),
            "positions": known.sum(),
        }

    def values(self, sums: Sums) -> Mapping[str, float]:
        positions = sums["positions"][0]
        mean = ratio(sums["surprise"][0], positions)
        return {
            "perplexity": math.exp(mean) if mean < 700 else math.inf,
            "accuracy": ratio(sums["hits"][0], positions),
        }


TASK = NextToken
