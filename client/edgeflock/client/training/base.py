"""What is frozen of a run's model, on this device: as it was made here, or fetched once from the server."""

from __future__ import annotations

from torch import Tensor

from edgeflock.common.errors import LayoutMismatch
from edgeflock.common.flat import FlatModel


class Base:
    """The frozen part that all training slots of a run share; whose digest is not the server's is none."""

    def __init__(self, made: FlatModel, digest: bytes) -> None:
        self.digest = digest  # the server's; empty: nothing is frozen
        self.is_here = not digest or made.base_digest == digest
        self._fetched: Tensor | None = None

    def offer(self, numbers: Tensor, model: FlatModel) -> bool:
        """Take the numbers, if they are the server's; the model has them then."""
        before = model.base.clone()
        model.base.copy_(numbers)
        if model.base_digest != self.digest:
            model.base.copy_(before)
            return False
        self._fetched, self.is_here = model.base.clone(), True
        return True

    def fill(self, model: FlatModel) -> None:
        """Give a slot's model what was fetched. Raises LayoutMismatch if nothing was that had to be."""
        if not self.is_here:
            raise LayoutMismatch("what is frozen of this client's model differs from the server's")
        if self._fetched is not None:
            model.base.copy_(self._fetched)
