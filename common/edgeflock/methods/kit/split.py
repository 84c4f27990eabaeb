"""Body and head of a model as parts of its flat vector, wherever the head's tensors lie in it."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from edgeflock.common.payload.layout import Layout


class LayoutPart:
    """The tensors of a layout with certain names: their own layout, and their places in the whole vector."""

    def __init__(self, whole: Layout, names: Collection[str]) -> None:
        places = [
            (spec, slice(start, start + spec.elements))
            for spec, start in zip(whole.tensors, whole.offsets(), strict=True)
            if spec.name in names
        ]
        self.layout = Layout(tuple(spec for spec, _ in places), whole.dtype)
        self._places = [place for _, place in places]

    def take(self, whole: Tensor) -> Tensor:
        """Return a copy of the part."""
        return torch.cat([whole[place] for place in self._places])

    def put(self, part: Tensor, whole: Tensor) -> None:
        """Write the part into its places."""
        pieces = torch.split(part, [spec.elements for spec in self.layout.tensors])
        for place, piece in zip(self._places, pieces, strict=True):
            whole[place] = piece


def split(whole: Layout, head: Collection[str]) -> tuple[LayoutPart, LayoutPart]:
    """Return body and head."""
    body = [spec.name for spec in whole.tensors if spec.name not in head]
    return LayoutPart(whole, body), LayoutPart(whole, head)
