"""The fold: counted updates, in ascending roster order, from the spool into the round's accumulators.

Folding a prefix while the round is open is a cache (DESIGN rule 2): it is dropped as soon as the counted
set turns out to be another. Finite numbers are checked once, on the sums: NaN and infinity do not leave
a sum again; only a sum that is not finite makes the updates be looked at one by one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeflock.common.errors import CorruptPayload, NonFinite
from edgeflock.common.payload.codecs.coding import decode_blocks
from edgeflock.common.payload.codecs.sources import FileSource
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.package import Kind, Package
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.accumulate import Accumulators
from edgeflock.methods.kit.base import Round, ServerHalf, State

Weigh = Callable[[int], float]  # samples -> weight in the mean


class SpooledUpdate:
    """One update as the fold sees it: read from its file block by block."""

    def __init__(self, seat: int, package: Package, path: Path | str, layouts: Mapping[Kind, Layout]) -> None:
        self.seat = seat
        self.package = package
        self.samples = int(package.scalars["samples"])
        self.steps = int(package.scalars["steps"])
        self.scalars = package.scalars
        self._path = path
        self._layouts = layouts

    def blocks(self, kind: Kind) -> Iterator[tuple[int, Tensor]]:
        section, position = self.package.section(kind), 0
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            source = FileSource(descriptor, self.package.offset(kind), section.size_bytes)
            for block in decode_blocks(section.codec, source, section.elements, self._layouts[kind].dtype):
                yield position, block
                position += block.numel()
        finally:
            os.close(descriptor)

    def tensor(self, kind: Kind) -> Tensor:
        parts = [block.clone() for _, block in self.blocks(kind)]
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else torch.zeros(0)

    def finite(self) -> bool:
        """Look at every number."""
        if not all(math.isfinite(value) for value in self.scalars.values()):
            return False
        kinds = (section.kind for section in self.package.sections)
        return all(finite(block) for kind in kinds for _, block in self.blocks(kind))


class Fold:
    """The accumulators of one open round. All calls from one thread."""

    def __init__(self, half: ServerHalf[Any], layouts: ModelLayouts, weigh: Weigh) -> None:
        self._half = half
        self._layouts = layouts
        self._weigh = weigh
        self.sums = Accumulators({**half.sums(), "buffers": layouts.buffers})
        self.counters = torch.zeros(layouts.counters.elements, dtype=torch.int64)
        self.folded: list[int] = []  # roster indices; Invariant: what the sums hold, in this order
        self.malformed: set[int] = set()  # of the open round: nothing of ours has encoded these

    def open(self, state: State, round: Round) -> None:
        """Begin a round."""
        self.sums.state, self.sums.round = state, round
        self.malformed.clear()
        self.reset()

    def reset(self) -> None:
        self.sums.reset()
        self.counters.zero_()
        self.folded.clear()
        self.loss, self.samples = 0.0, 0  # of all together
        self.steps = 0  # of who has done most

    def advance(self, cohort: Collection[int], updates: Mapping[int, SpooledUpdate]) -> None:
        """Fold ahead: as far as the members of the cohort are here without a gap."""
        while True:
            try:
                return self._advance(sorted(set(cohort) - self.malformed), updates)
            except CorruptPayload:  # of the update that was about to be added
                self.malformed.add(self.folded[-1])  # with which nothing is expected that begins so

    def _advance(self, expected: list[int], updates: Mapping[int, SpooledUpdate]) -> None:
        if self.folded != expected[: len(self.folded)]:
            self.reset()
        for seat in expected[len(self.folded) :]:
            if seat not in updates:
                return
            self._add(updates[seat])

    def finish(self, counted: Collection[int], updates: Mapping[int, SpooledUpdate]) -> dict[int, Verdict]:
        """Fold exactly the counted set and return those of it that were left out, and why.

        Raises NonFinite if every update is finite and their sum is not.
        """
        self.advance(counted, updates)
        rejected = {seat: Verdict.MALFORMED for seat in sorted(self.malformed & set(counted))}
        if not self._finite():
            bad = [seat for seat in self.folded if not updates[seat].finite()]
            if not bad:
                raise NonFinite("every update is finite, but their sum is not")
            rejected |= dict.fromkeys(bad, Verdict.NON_FINITE)
            self.reset()
            self.advance(set(counted) - set(bad), updates)
        if self._half.second_walk and not self.sums.round.closing:
            self._walk_again(updates)
        return rejected

    def _add(self, update: SpooledUpdate) -> None:
        self.folded.append(update.seat)
        if not update.samples:  # an empty shard: weight 0, and not one of |S|
            return
        weight = self._weigh(update.samples)
        self.sums.updates += 1
        if self.sums.round.closing:
            self._half.fold_closing(self.sums, update, weight)
            return
        self._half.fold(self.sums, update, weight)
        self._add_buffers(update, weight)
        self.loss += update.samples * update.scalars["loss"]
        self.samples += update.samples
        self.steps = max(self.steps, update.steps)

    def _add_buffers(self, update: SpooledUpdate, weight: float) -> None:
        if self._layouts.buffers.elements:
            self.sums.add("buffers", update, Kind.BUFFERS, weight)
        if self._layouts.counters.elements:
            torch.maximum(self.counters, update.tensor(Kind.COUNTERS), out=self.counters)

    def _walk_again(self, updates: Mapping[int, SpooledUpdate]) -> None:
        for seat in self.folded:
            update = updates[seat]
            if update.samples:
                self._half.second(self.sums, update, self._weigh(update.samples))

    def _finite(self) -> bool:
        scalars = [self.loss, *self.sums.scalars.values(), *self.sums.weights.values()]
        return all(map(math.isfinite, scalars)) and all(map(finite, self.sums.vectors.values()))


def finite(flat: Tensor) -> bool:
    """Whether every number is finite. A finite sum proves it in one pass; another is looked at closely."""
    if not flat.is_floating_point() or math.isfinite(float(flat.sum())):
        return True
    return bool(torch.isfinite(flat).all())
