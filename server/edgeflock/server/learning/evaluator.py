"""Evaluation of server-side models on the server's samples, with one model of its own."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.common.flat import FlatModel
from edgeflock.common.foreign import foreign
from edgeflock.common.models.kit.base import Net
from edgeflock.common.scores import Score
from edgeflock.methods.kit.batches import LocalData

_BATCH = 256


class Evaluator:
    """Holds a copy of a model's numbers while it is tested; `hold` waits until the last test is over."""

    def __init__(self, net: Net) -> None:
        self._net = net.eval()
        self._flat = FlatModel(net)
        self._busy = threading.Lock()

    def hold(self) -> None:
        """Take it for a test, which calls `release` exactly once, from any thread."""
        self._busy.acquire()

    def release(self) -> None:
        self._busy.release()

    def load(self, parameters: Tensor, buffers: Tensor) -> None:
        """Copy the numbers."""
        self._flat.params.copy_(parameters)
        self._flat.buffers.copy_(buffers)
        self._flat.restore()

    @torch.no_grad()
    def score(self, samples: LocalData) -> Score:
        """Test the model whose numbers were loaded."""
        hits, loss, count = 0, 0.0, len(samples)
        with foreign("the test of the model"):
            for start in range(0, count, _BATCH):
                x, y = samples.x[start : start + _BATCH], samples.y[start : start + _BATCH]
                _, logits = self._net(x)
                hits += int(self._net.hits(logits, y))
                loss += float(self._net.loss(logits, y)) * len(y)
        # Not a number comes of logits beyond all numbers; no row can hold it, and the hits are as they are.
        return Score(hits / count, math.inf if math.isnan(loss) else loss / count, count)


@dataclass(frozen=True)
class Testers:
    """Who tests what: the global model apart from all others, so that its score waits for none of theirs."""

    __test__ = False  # not a pytest class

    result: Evaluator
    test: LocalData
    others: Evaluator | None = None  # where there are others
    train: LocalData | None = None  # what the clients train on, where the global model is tested on it, too
