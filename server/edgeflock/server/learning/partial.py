"""A partial sum: what the updates of some seats add up to, as a value that merges, packs and unpacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.layout import NO_COUNTERS, Layout
from edgeflock.common.payload.pack import Packed, pack, unpack_section
from edgeflock.common.payload.package import IDENTITY, Kind, Package
from edgeflock.methods.kit.accumulate import Accumulators

_WORD = 8  # bytes of an int64, as which the notes travel


class Partial:
    """The sum over some seats. Which sums are added to which, and in what order, says the tree."""

    def __init__(self, layouts: Mapping[str, Layout], counters: Layout = NO_COUNTERS) -> None:
        self.sums = Accumulators(layouts)
        self.counters = torch.zeros(counters.elements, dtype=torch.int64)  # the largest
        self._layouts = {
            Kind.SUM: Layout.of((name, (layout.elements,)) for name, layout in layouts.items()),
            Kind.COUNTERS: counters,
        }
        self.reset()

    def reset(self) -> None:
        self.sums.reset()
        self.counters.zero_()
        self.seats: list[int] = []  # whose updates are in it, ascending
        self.loss, self.samples = 0.0, 0  # of all together
        self.steps = 0  # of who has done most

    def merge(self, other: Partial) -> None:
        """Add the sum over seats that come after these."""
        self.seats += other.seats
        self.sums.merge(other.sums)
        torch.maximum(self.counters, other.counters, out=self.counters)
        self.loss += other.loss
        self.samples += other.samples
        self.steps = max(self.steps, other.steps)

    def beside(self) -> Partial:
        """Return a sum of scalars alone, beside which the vectors of this one are read: of a second walk."""
        walked = Partial({})
        walked.sums.vectors, walked.sums.weights = self.sums.vectors, self.sums.weights
        return walked

    # --------------------------------------------------------------------------------- as a package

    def pack(self) -> Packed:
        """Return it as a package whose pieces are views of its own memory: bit for bit what it is."""
        notes = _words(self._notes())
        layouts = {**self._layouts, Kind.NOTES: _of_words(len(notes))}
        flats = {Kind.SUM: self.sums.flat, Kind.COUNTERS: self.counters, Kind.NOTES: notes}
        bundles = {kind: (flat, layouts[kind], IDENTITY) for kind, flat in flats.items() if flat.numel()}
        return pack(bundles, {}, lambda kind: torch.Generator())

    def unpack(self, package: Package, payload: memoryview) -> None:
        """Become what was packed. Raises LayoutMismatch or CorruptPayload; it is unspecified then."""
        if len(payload) != package.size_bytes or extend(0, payload) != package.crc32c:
            raise CorruptPayload("a partial sum has not the bytes that its package describes")
        words = sum(part.size_bytes for part in package.sections if part.kind is Kind.NOTES) // _WORD
        layouts, notes = (
            {**self._layouts, Kind.NOTES: _of_words(words)},
            torch.zeros(words, dtype=torch.int64),
        )
        flats = {Kind.SUM: self.sums.flat, Kind.COUNTERS: self.counters, Kind.NOTES: notes}
        for kind, flat in flats.items():
            if kind in package.kinds():
                section, start = package.section(kind), package.offset(kind)
                unpack_section(section, layouts[kind], payload[start : start + section.size_bytes], flat)
            elif flat.numel() or kind is Kind.NOTES:
                raise CorruptPayload(f"a partial sum holds no {kind}")
        self._note(notes)

    def _notes(self) -> dict[str, Any]:
        """Everything but the vectors; floats are written so that the same ones are read."""
        own = {name: self.sums.weights[name] for name in self.sums.names}
        return {
            "seats": self.seats,
            "weights": own,
            "scalars": self.sums.scalars,
            "counts": [self.sums.updates, self.sums.operations, self.sums.forward_samples],
            "training": [self.loss, self.samples, self.steps],
        }

    def _note(self, words: Tensor) -> None:
        try:
            notes = json.loads(words.numpy().tobytes())
            self.seats = [int(seat) for seat in notes["seats"]]
            self.sums.weights |= {name: float(notes["weights"][name]) for name in self.sums.names}
            self.sums.scalars = {str(name): float(value) for name, value in notes["scalars"].items()}
            updates, operations, passed = map(int, notes["counts"])
            loss, samples, steps = notes["training"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptPayload(f"the notes of a partial sum cannot be read: {error!r}") from None
        self.sums.updates, self.sums.operations, self.sums.forward_samples = updates, operations, passed
        self.loss, self.samples, self.steps = float(loss), int(samples), int(steps)


def _words(notes: dict[str, Any]) -> Tensor:
    text = json.dumps(notes, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _WORD)
    return torch.frombuffer(bytearray(text), dtype=torch.int64)


def _of_words(words: int) -> Layout:
    return Layout.single("notes", words, dtype="int64")
