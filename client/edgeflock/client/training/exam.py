"""The exam: a client's own model on its test samples, after the local work."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgeflock.common.payload.package import Kind
from edgeflock.common.scores import DEVICES, LOCAL, ClientScore
from edgeflock.common.tasks.kit.marking import ScoreTally
from edgeflock.methods.kit.base import ClientHalf
from edgeflock.methods.kit.batches import Stock
from edgeflock.methods.kit.local import WALK_SIZE, Local

Proceed = Callable[[], bool]


class TestSamples:
    """Test samples by the score that they are for, each made when it is first asked for."""

    __test__ = False  # not a pytest class

    def __init__(self, make: Mapping[str, Callable[[], Stock | None]]) -> None:
        self._make = make
        self._made: dict[str, Stock | None] = {}
        self._making = threading.Lock()

    def of(self, model: str) -> Stock | None:
        """Return the samples, None if there are none."""
        with self._making:
            if model not in self._made:
                found = self._make[model]() if model in self._make else None
                self._made[model] = found if found is not None and len(found) else None
            return self._made[model]


def examine(
    half: ClientHalf[Any], work: Local, tests: TestSamples, wanted: Sequence[str], proceed: Proceed
) -> tuple[ClientScore, ...]:
    """Return the scores that are wanted, those for which there are samples.

    A score that is not a number is left out: the update says so itself.
    """
    vector = half.own_model(work) if wanted else None
    if vector is None:
        return ()
    buffers, found = half.own_buffers(work), []
    for model in dict.fromkeys(wanted):
        data = tests.of(model)
        score = None if data is None else _score(work, model, (vector, buffers), data, proceed)
        if score is not None and math.isfinite(score.loss):
            found.append(score)
    return tuple(found)


def examine_received(
    work: Local, tests: TestSamples, wanted: Sequence[str], proceed: Proceed
) -> tuple[ClientScore, ...]:
    """Return how the global model does as it was received, if that is wanted: before a step is done.

    Of one whose head stays with the clients nobody has the whole.
    """
    data = tests.of(LOCAL) if DEVICES in wanted else None
    if data is None or work.start.numel() != work.params.numel():
        return ()
    score = _score(work, DEVICES, (work.start, work.received.get(Kind.BUFFERS)), data, proceed)
    return (score,) if score is not None and math.isfinite(score.loss) else ()


@torch.no_grad()
def _score(
    work: Local, model: str, own: tuple[Tensor, Tensor | None], data: Stock, proceed: Proceed
) -> ClientScore | None:
    tally = ScoreTally(work.net)
    with work.bench.evaluating(), work.bench.at(*own):
        for x, y in data.parts(WALK_SIZE):
            if not proceed():
                return None
            tally.add(work.net(x)[1], y)
    return ClientScore(model, tally.samples, tally.hits, tally.loss, tally.sums)
