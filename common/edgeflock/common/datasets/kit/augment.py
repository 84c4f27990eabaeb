"""Augmentation: training pictures mirrored and cropped at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from edgeflock.common.errors import BadValue

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

    def of(self, x: Tensor, random: np.random.Generator) -> Tensor:
        """Return the pictures of a batch, augmented, in a tensor of their own."""
        count, channels, height, width = x.shape
        wide = F.pad(x, [self.crop] * 4) if self.crop else x
        places = random.integers(0, 2 * self.crop + 1, (2, count, 1))
        rows, columns = places[0] + np.arange(height), places[1] + np.arange(width)
        if self.flip:
            columns = np.where(random.random((count, 1)) < 0.5, columns[:, ::-1], columns)
        at = np.arange(count)[:, None, None, None], np.arange(channels)[None, :, None, None]
        pixels = (*at, rows[:, None, :, None], columns[:, None, None, :])
        return wide[tuple(torch.from_numpy(part).to(x.device) for part in pixels)]


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
