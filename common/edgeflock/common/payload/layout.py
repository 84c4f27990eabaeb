"""Layouts: names, shapes and dtype of a bundle's tensors in one contiguous buffer, with a digest."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from edgeflock.common.payload.package import Kind

ITEM_BYTES = {"float32": 4, "int64": 8}
DIGEST_BYTES = 16


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a bundle."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The tensors of a bundle in the order in which they lie in its buffer, without gaps."""

    tensors: tuple[TensorSpec, ...]
    dtype: str = "float32"
    stated: bytes = b""  # its digest, if that is all that is known of it

    @classmethod
    def of(cls, named_shapes: Iterable[tuple[str, Iterable[int]]], dtype: str = "float32") -> Layout:
        return cls(tuple(TensorSpec(name, tuple(shape)) for name, shape in named_shapes), dtype)

    @classmethod
    def single(cls, name: str, *shape: int, dtype: str = "float32") -> Layout:
        return cls((TensorSpec(name, shape),), dtype)

    @cached_property
    def elements(self) -> int:
        return sum(spec.elements for spec in self.tensors)

    @property
    def size_bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    @cached_property
    def digest(self) -> bytes:
        """Identity of the layout: SHA-256 over its canonical text, cut to 16 bytes."""
        if self.stated:
            return self.stated
        lines = [self.dtype, *(f"{spec.name}:{','.join(map(str, spec.shape))}" for spec in self.tensors)]
        return hashlib.sha256("\n".join(lines).encode()).digest()[:DIGEST_BYTES]

    def offsets(self) -> list[int]:
        """Return the first element of every tensor in the buffer."""
        found, position = [], 0
        for spec in self.tensors:
            found.append(position)
            position += spec.elements
        return found

    @classmethod
    def known_by(cls, digest: bytes, dtype: str) -> Layout:
        """Return the layout of that digest, of which no more is known unless it is that of no tensors."""
        nothing = cls((), dtype)
        return nothing if digest == nothing.digest else cls((), dtype, digest)

    def difference(self, other: Layout) -> str:
        """Return a sentence about the first place where two layouts differ."""
        for mine, theirs in zip(self.tensors, other.tensors, strict=False):
            if mine != theirs:
                return f"{mine.name} {list(mine.shape)} here, {theirs.name} {list(theirs.shape)} there"
        return (
            f"{len(self.tensors)} tensors of {self.dtype} here, {len(other.tensors)} of {other.dtype} there"
        )


NO_BUFFERS, NO_COUNTERS = Layout(()), Layout((), "int64")


@dataclass(frozen=True)
class ModelLayouts:
    """The layouts of a model's flat tensors."""

    parameters: Layout
    buffers: Layout = NO_BUFFERS
    counters: Layout = NO_COUNTERS
    base: Layout = NO_BUFFERS  # what is frozen: it is in no bundle of a round

    @cached_property
    def beside(self) -> dict[Kind, Layout]:
        """What goes both ways beside a method's own bundles."""
        return {Kind.BUFFERS: self.buffers, Kind.COUNTERS: self.counters}

    def of(self, vector: str) -> Layout:
        return {"model": self.parameters, "buffers": self.buffers, "counters": self.counters}[vector]
