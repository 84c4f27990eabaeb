"""Evaluation of server-side models on the server's test set, with one model of its own."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from edgeflock.common.flat import FlatModel
from edgeflock.common.foreign import foreign
from edgeflock.common.models.kit.base import Net
from edgeflock.common.scores import Score

_BATCH = 256


class Evaluator:
    """Holds a copy of a model's numbers while it is tested; `load` waits until the last test is over."""

    def __init__(self, net: Net, x: Tensor, y: Tensor) -> None:
        self._net = net.eval()
        self._flat = FlatModel(net)
        self._x, self._y = x, y
        self._busy = threading.Lock()

    def load(self, parameters: Tensor, buffers: Tensor) -> Callable[[], Score]:
        """Copy the numbers and return the test, to be called exactly once from any thread."""
        self._busy.acquire()
        self._flat.params.copy_(parameters)
        self._flat.buffers.copy_(buffers)
        self._flat.restore()
        return self._run

    def _run(self) -> Score:
        try:
            with foreign("the test of the model"):
                return self._score()
        finally:
            self._busy.release()

    @torch.no_grad()
    def _score(self) -> Score:
        hits, loss = 0, 0.0
        for start in range(0, len(self._y), _BATCH):
            x, y = self._x[start : start + _BATCH], self._y[start : start + _BATCH]
            _, logits = self._net(x)
            hits += int(self._net.hits(logits, y))
            loss += float(self._net.loss(logits, y)) * len(y)
        samples = len(self._y)
        # Not a number comes of logits beyond all numbers; no row can hold it, and the hits are as they are.
        return Score(hits / samples, math.inf if math.isnan(loss) else loss / samples, samples)
