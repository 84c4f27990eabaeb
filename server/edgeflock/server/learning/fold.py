"""The fold: counted updates, in ascending order of seats, from the spool into the round's sum, a tree.

Folding a prefix while the round is open is a cache (DESIGN rule 2): it is dropped as soon as the counted
set turns out to be another. Finite numbers are checked once, on the sums: NaN and infinity do not leave
a sum again; only a sum that is not finite makes the updates be looked at one by one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
from edgeflock.server.learning.partial import Partial
from edgeflock.server.learning.tree import Tree

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
    """The sum of one open round. All calls from one thread."""

    def __init__(self, half: ServerHalf[Any], layouts: ModelLayouts, weigh: Weigh) -> None:
        self._half = half
        self._layouts = layouts
        self._weigh = weigh
        self._named = {**half.sums(), "buffers": layouts.buffers}
        self._tree = Tree(self.make)
        self.state = State()  # the server's, which the round started from: read only
        self.round = Round(0, 0.0, (), {})  # the round that is folded, with what S0 has prepared
        self.total = self._tree.root()  # of the counted set, once that is folded
        self.folded: list[int] = []  # seats; Invariant: what the tree holds, in this order
        self.malformed: set[int] = set()  # of the open round: nothing of ours has encoded these
        self._cohort: tuple[int, ...] | None = None  # which `_expected` was made of: once for all arrivals
        self._expected: list[int] = []  # Invariant: `folded` is how it begins

    def make(self) -> Partial:
        """Return an empty sum of this run's shape."""
        return Partial(self._named, self._layouts.counters)

    def open(self, state: State, round: Round) -> None:
        """Begin a round."""
        self.state, self.round = state, round
        self.malformed.clear()
        self._cohort = None
        self.reset()

    def reset(self) -> None:
        self._tree.reset()
        self.folded.clear()

    def advance(self, cohort: Collection[int], updates: Mapping[int, SpooledUpdate]) -> None:
        """Fold ahead: as far as the members of the cohort are here without a gap."""
        while True:
            try:
                return self._advance(self._expect(cohort), updates)
            except CorruptPayload:  # of the update that was about to be added
                self.malformed.add(self.folded[-1])  # with which nothing is expected that begins so
                self._cohort = None

    def _expect(self, cohort: Collection[int]) -> list[int]:
        """Return who is to be folded, in order, and forget what is folded of others."""
        if cohort is not self._cohort:
            self._cohort = cohort if isinstance(cohort, tuple) else None
            self._expected = sorted(set(cohort) - self.malformed)
            if self.folded != self._expected[: len(self.folded)]:
                self.reset()
        return self._expected

    def _advance(self, expected: list[int], updates: Mapping[int, SpooledUpdate]) -> None:
        if self._tree.closed and len(self.folded) < len(expected):
            self.reset()
        while len(self.folded) < len(expected) and (seat := expected[len(self.folded)]) in updates:
            self._add(updates[seat])

    def finish(self, counted: Collection[int], updates: Mapping[int, SpooledUpdate]) -> dict[int, Verdict]:
        """Fold exactly the counted set and return those of it that were left out, and why.

        Raises NonFinite if every update is finite and their sum is not.
        """
        self._finish(counted, updates)
        rejected = {seat: Verdict.MALFORMED for seat in sorted(self.malformed & set(counted))}
        if not self._finite():
            bad = [seat for seat in self.folded if not updates[seat].finite()]
            if not bad:
                raise NonFinite("every update is finite, but their sum is not")
            rejected |= dict.fromkeys(bad, Verdict.NON_FINITE)
            self.reset()
            self._finish(set(counted) - set(bad), updates)
        if self._half.second_walk and not self.round.closing:
            self.total.sums.merge(self.walk_again(self.total, self.folded, updates).sums)
        return rejected

    def _finish(self, counted: Collection[int], updates: Mapping[int, SpooledUpdate]) -> None:
        self.advance(counted, updates)
        self.total = self._tree.root()

    def _add(self, update: SpooledUpdate) -> None:
        self.folded.append(update.seat)
        part = self._tree.leaf(update.seat)
        part.seats.append(update.seat)
        if not update.samples:  # an empty shard: weight 0, and not one of |S|
            return
        weight, sums = self._weigh(update.samples), self._with_round(part.sums)
        sums.updates += 1
        if self.round.closing:
            self._half.fold_closing(sums, update, weight)
            return
        self._half.fold(sums, update, weight)
        self._add_buffers(part, update, weight)
        part.loss += update.samples * update.scalars["loss"]
        part.samples += update.samples
        part.steps = max(part.steps, update.steps)

    def _add_buffers(self, part: Partial, update: SpooledUpdate, weight: float) -> None:
        if self._layouts.buffers.elements:
            part.sums.add("buffers", update, Kind.BUFFERS, weight)
        if self._layouts.counters.elements:
            torch.maximum(part.counters, update.tensor(Kind.COUNTERS), out=part.counters)

    def walk_again(
        self, total: Partial, seats: Iterable[int], updates: Mapping[int, SpooledUpdate]
    ) -> Partial:
        """Let the method see these updates again beside the sum of all; return what it counts of them."""
        tree = Tree(total.beside)
        for seat in sorted(seats):
            part, update = tree.leaf(seat), updates[seat]
            part.seats.append(seat)
            if update.samples:
                self._half.second(self._with_round(part.sums), update, self._weigh(update.samples))
        return tree.root()

    def _with_round(self, sums: Accumulators) -> Accumulators:
        sums.state, sums.round = self.state, self.round
        return sums

    def _finite(self) -> bool:
        sums = self.total.sums
        scalars = [self.total.loss, *sums.scalars.values(), *sums.weights.values()]
        return all(map(math.isfinite, scalars)) and finite(sums.flat)


def finite(flat: Tensor) -> bool:
    """Whether every number is finite. A finite sum proves it in one pass; another is looked at closely."""
    if not flat.is_floating_point() or math.isfinite(float(flat.sum())):
        return True
    return bool(torch.isfinite(flat).all())
