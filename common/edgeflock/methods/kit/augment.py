"""Augmentation: training pictures mirrored and cropped at random, the same when a step is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from edgeflock.common import seeds
from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.batches import Batch
from edgeflock.methods.kit.order import Order

FLIP, CROP, NONE = "flip", "crop", "none"
FLAG = "--augment"
WORDS = "none, or flip and crop:PIXELS, one of them or both, such as flip,crop:4"


@dataclass(frozen=True)
class Augmentation:
    """What is done to the pictures of a batch; `str()` gives the text that `parse` understands."""

    flip: bool = False  # mirrored from left to right with probability 1/2
    crop: int = 0  # pixels of zeros put around it, before a piece of its size is cut out anywhere

    def __str__(self) -> str:
        parts = [*([FLIP] if self.flip else []), *([f"{CROP}:{self.crop}"] if self.crop else [])]
        return ",".join(parts) or NONE

    def __bool__(self) -> bool:
        return self.flip or self.crop > 0

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise BadValue with a sentence if that cannot be done to samples of a shape."""
        if self and len(shape) != 3:
            found = "x".join(map(str, shape))
            raise BadValue(FLAG, str(self), f"none: samples are no pictures, their shape is {found}")
        if self.crop > min(shape[1:], default=0):
            allowed = f"crop:PIXELS with at most {min(shape[1:])}, the shorter side of the pictures"
            raise BadValue(FLAG, str(self), allowed)

    def each(self, batches: Iterable[Batch], order: Order, round: int) -> Iterator[Batch]:
        """Yield the batches of a round's steps, augmented."""
        for batch in batches:
            yield self.of(batch, order, round, batch.step)

    def of(self, batch: Batch, order: Order, round: int, step: int) -> Batch:
        """Return the batch of a round's step, augmented, in tensors of its own.

        What is done is a function of the run's seed, the seat of the order, round and step.
        """
        random = seeds.numpy_generator(order.seed, "augment", order.seat, round, step)
        x = F.pad(batch.x, [self.crop] * 4) if self.crop else batch.x
        count, channels, height, width = batch.x.shape
        places = random.integers(0, 2 * self.crop + 1, (2, count, 1))
        rows, columns = places[0] + np.arange(height), places[1] + np.arange(width)
        if self.flip:
            columns = np.where(random.random((count, 1)) < 0.5, columns[:, ::-1], columns)
        at = np.arange(count)[:, None, None, None], np.arange(channels)[None, :, None, None]
        seat = (*at, rows[:, None, :, None], columns[:, None, None, :])
        return batch._replace(x=x[tuple(torch.from_numpy(part).to(x.device) for part in seat)])


OFF = Augmentation()


def parse(text: str) -> Augmentation:
    """Return what an operator writes: flip,crop:4. Raises BadValue."""
    if text == NONE:
        return OFF
    found: dict[str, int] = {}
    for part in text.split(","):
        name, colon, pixels = part.strip().partition(":")
        if name in found or name not in (FLIP, CROP) or (name == FLIP and colon):
            raise BadValue(FLAG, text, WORDS)
        found[name] = 1 if name == FLIP else _pixels(text, pixels)
    return Augmentation(FLIP in found, found.get(CROP, 0))


def _pixels(text: str, pixels: str) -> int:
    if not (pixels.isascii() and pixels.isdecimal() and len(pixels) < 7 and int(pixels)):
        raise BadValue(FLAG, text, WORDS)
    return int(pixels)
