"""The bytes of a tensor where they lie."""

from __future__ import annotations

from torch import Tensor


def memory(flat: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, writable and without a copy."""
    if not flat.numel():
        return memoryview(bytearray())  # a view without items cannot be cast
    return flat.detach().numpy().data.cast("B")
