"""Augmentation: training pictures mirrored and cropped at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from numpy.typing import NDArray
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
        places = random.integers(0, 2 * self.crop + 1, (2, len(x)))
        cut = self._cropped(x, places) if self.crop else x
        if not self.flip:
            return cut
        mirrored = torch.from_numpy(random.random(len(x)) < 0.5).to(x.device)
        return torch.where(mirrored[:, None, None, None], cut.flip(3), cut)

    def _cropped(self, x: Tensor, places: NDArray[np.int64]) -> Tensor:
        """Cut a piece out of every picture in its margin; one by one, which is faster than by indices."""
        wide, (height, width) = F.pad(x, [self.crop] * 4), x.shape[2:]
        cut = torch.empty_like(x)
        for picture, (top, left) in enumerate(places.T.tolist()):
            cut[picture] = wide[picture, :, top : top + height, left : left + width]
        return cut


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
