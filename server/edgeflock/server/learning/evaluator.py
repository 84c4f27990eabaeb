"""Evaluation of server-side models on the server's samples, with one model of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.common.flat import FlatModel
from edgeflock.common.foreign import foreign
from edgeflock.common.models.kit.base import Net
from edgeflock.common.scores import Score
from edgeflock.common.tasks.kit.marking import Marking, ScoreTally
from edgeflock.methods.kit.batches import LocalData

_BATCH = 256


class Evaluator:
    """Holds a copy of a model's numbers while it is tested; `hold` waits until the last test is over."""

    def __init__(self, net: Net, marking: Marking) -> None:
        self._net, self._marking = net.eval(), marking
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
        tally = ScoreTally(self._net)
        with foreign("the test of the model"):
            for x, y in samples.parts(_BATCH):
                tally.add(self._net(x)[1], y)
        return self._marking.score(tally.samples, tally.loss, tally.sums)


@dataclass(frozen=True)
class Testers:
    """Who tests what: the global model apart from all others, so that its score waits for none of theirs."""

    __test__ = False  # not a pytest class

    result: Evaluator
    test: LocalData
    others: Evaluator | None = None  # where there are others
    train: LocalData | None = None  # what the clients train on, where the global model is tested on it, too
