"""Augmentation: training samples changed at random: pictures mirrored and cropped, or by a plug-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from numpy.typing import NDArray
from torch import Tensor

from edgeflock.common.errors import BadData, BadValue
from edgeflock.common.plugins.loading import find, installed

FLIP, CROP, NONE = "flip", "crop", "none"
FLAG = "--augment"
WORDS = "none, or flip and crop:PIXELS, one of them or both, such as flip,crop:4, and plug-ins after them"

Change = Callable[[Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Transform:
    """What somebody else does to the samples of a batch, whose labels stay."""

    name: str
    change: Change

    def of(self, x: Tensor, random: np.random.Generator) -> Tensor:
        """Return the samples as they are changed. Raises BadData if type or shape are others."""
        made: object = self.change(x, random)
        if not isinstance(made, Tensor) or made.shape != x.shape or made.dtype != x.dtype:
            found = f"{made.dtype} of shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made)
            wanted = f"{x.dtype} of shape {tuple(x.shape)}"
            raise BadData(f"the transform {self.name} returns {found}, needed is {wanted}")
        return made


@dataclass(frozen=True)
class Augmentation:
    """What is done to the samples of a batch; `str()` gives the text that `parse` understands."""

    flip: bool = False  # mirrored from left to right with probability 1/2
    crop: int = 0  # pixels of zeros put around it, before a piece of its size is cut out anywhere
    others: tuple[Transform, ...] = ()  # after that, in this order

    def __str__(self) -> str:
        parts = [*([FLIP] if self.flip else []), *([f"{CROP}:{self.crop}"] if self.crop else [])]
        return ",".join([*parts, *(other.name for other in self.others)]) or NONE

    def __bool__(self) -> bool:
        return self.moves or bool(self.others)

    @property
    def moves(self) -> bool:
        """Whether pictures are moved, which labels with a place would have to follow."""
        return self.flip or self.crop > 0

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise BadValue with a sentence if that cannot be done to samples of a shape."""
        if self.moves and len(shape) != 3:
            found = "x".join(map(str, shape))
            raise BadValue(FLAG, str(self), f"none: samples are no pictures, their shape is {found}")
        if self.crop > min(shape[1:], default=0):
            allowed = f"crop:PIXELS with at most {min(shape[1:])}, the shorter side of the pictures"
            raise BadValue(FLAG, str(self), allowed)

    def of(self, x: Tensor, random: np.random.Generator) -> Tensor:
        """Return the samples of a batch, augmented, in a tensor of their own."""
        x = self._moved(x, random) if self.moves else x.clone()
        for other in self.others:
            x = other.of(x, random)
        return x

    def _moved(self, x: Tensor, random: np.random.Generator) -> Tensor:
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
    """Return what an operator writes: flip,crop:4. Raises BadValue, or PluginError for a plug-in."""
    if text == NONE:
        return OFF
    found: dict[str, int] = {}
    others: list[Transform] = []
    for part in split(text):
        name, colon, pixels = part.partition(":")
        if name not in (FLIP, CROP):
            others.append(_plugin(text, part))
            continue
        if name in found or (name == FLIP and colon):
            raise BadValue(FLAG, text, WORDS)
        found[name] = 1 if name == FLIP else _pixels(text, pixels)
    return Augmentation(FLIP in found, found.get(CROP, 0), tuple(others))


def split(text: str) -> list[str]:
    """Return the parts of what an operator writes."""
    return [part.strip() for part in text.split(",")]


def own() -> tuple[str, ...]:
    """Return the names that are no plug-ins'."""
    return FLIP, CROP, NONE


def _plugin(text: str, name: str) -> Transform:
    change = find("transforms", name, object)
    if change is None:
        more = f" ({', '.join(installed('transforms'))})" if installed("transforms") else ""
        raise BadValue(FLAG, text, WORDS + more)
    if not callable(change):
        raise BadValue(FLAG, text, f"{WORDS} ({name} cannot be called)")
    return Transform(name, cast("Change", change))


def _pixels(text: str, pixels: str) -> int:
    if not (pixels.isascii() and pixels.isdecimal() and len(pixels) < 7 and int(pixels)):
        raise BadValue(FLAG, text, WORDS)
    return int(pixels)
