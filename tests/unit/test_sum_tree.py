"""The sum over seats is one tree: the same bits from one process, from parts in any order, and from a hand.

Weights are powers of two, so that a product is exact and an oracle needs no fused multiplication.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeflock.common.errors import CorruptPayload, LayoutMismatch
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind, Package
from edgeflock.methods.kit import registry
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.values import Round, Setting, State
from edgeflock.server.learning.fold import Fold, SpooledUpdate
from edgeflock.server.learning.partial import Partial
from edgeflock.server.learning.tree import Tree, joined

NUMBERS, FILES, CLASSES = 33, 16, 3
LAYOUTS = ModelLayouts(
    parameters=Layout.of([("weight", (CLASSES, 10)), ("bias", (3,))]),
    buffers=Layout.of([("mean", (3,))]),
    counters=Layout.of([("batches", ())], "int64"),
)
ROUND = Round(1, 0.1, (), {})


class Fleet:
    """Updates of thousands of seats, of a few files: every one has its own weight and loss."""

    def __init__(self, folder: Path, method: str = "fedavg", clients: int = 5000) -> None:
        self.method = registry.load(method)
        self.params = parse(self.method.params, {})
        setting = Setting(LAYOUTS.parameters, CLASSES, 10, clients, seed=0, head=("bias",))
        self.half = self.method.server(self.params, setting)
        uploads = {kind: self.half.layout(kind) for kind in self.half.uploads(ROUND)}
        self.kinds = {**uploads, **LAYOUTS.beside}
        self._files = [self._file(folder / f"{number}.data", number) for number in range(FILES)]

    def _file(self, path: Path, number: int) -> tuple[Package, Path]:
        generator = torch.Generator().manual_seed(number)
        floats = {
            kind: torch.randn(layout.elements, generator=generator) for kind, layout in self.kinds.items()
        }
        floats[Kind.COUNTERS] = torch.tensor([number])
        if Kind.COUNTS in floats:
            floats[Kind.COUNTS] = torch.tensor([1.0, 2.0, 4.0])
        packed = pack(
            {kind: (flat, self.kinds[kind], IDENTITY) for kind, flat in floats.items()},
            {},
            lambda kind: generator,
        )
        path.write_bytes(b"".join(bytes(piece) for piece in packed.pieces))
        return packed.package, path

    def update(self, seat: int) -> SpooledUpdate:
        package, path = self._files[seat % FILES]
        numbers = {name: 0.1 + seat % 7 for name in self.half.scalars}
        scalars = {
            "samples": 2.0 ** (seat % 3),
            "steps": 1.0 + seat % 5,
            "loss": 0.1 * (seat % 11),
            **numbers,
        }
        if not seat % 50:
            scalars["samples"] = 0.0
        return SpooledUpdate(seat, Package(package.sections, scalars, package.crc32c), path, self.kinds)

    def fold(self) -> Fold:
        fold = Fold(self.half, LAYOUTS, lambda samples: self.method.weight(self.params, samples))
        fold.open(State(), ROUND)
        return fold

    def folded(self, seats: Collection[int], fold: Fold | None = None) -> Partial:
        fold = fold or self.fold()
        assert fold.finish(seats, {seat: self.update(seat) for seat in seats}) == {}
        return fold.total


def with_gaps(count: int, *, upto: int) -> list[int]:
    """Return so many seats below the bound: some missing, where that can be, and the last one there."""
    return sorted({*random.Random(count).sample(range(upto), count - 1), upto - 1})


SEATS = {
    "63": range(63),
    "64": range(64),
    "65": range(65),
    "63 of 64": with_gaps(63, upto=64),
    "64 of 200": with_gaps(64, upto=200),
    "128": range(128),
    "128 of 300": with_gaps(128, upto=300),
    "whole groups are missing": [*range(5, 20), *range(640, 700), 4090],
    "1 of many": [4999],
    "4096": range(4096),
    "4097": range(4097),
    "1000 of 5000": with_gaps(1000, upto=5000),
}


def by_hand(seats: Collection[int], of: Callable[[int], Any], level: int | None = None) -> Any:
    """The definition, from above: a node is the sequence of its children that hold anybody."""
    if level is None:
        level = 0
        while max(seats) // 64 ** (level + 1):
            level += 1
    groups: dict[int, list[int]] = {}
    for seat in sorted(seats):
        groups.setdefault(seat // 64**level, []).append(seat)
    total = None
    for group in groups.values():
        below = of(group[0]) if level == 0 else by_hand(group, of, level - 1)
        total = below if total is None else total + below
    return total


def nodes_of(seats: Collection[int], dice: random.Random) -> list[list[int]]:
    """Cut seats into whole nodes of several levels: a group of 4,096 at a time, or its groups of 64."""
    cut: dict[tuple[int, int], list[int]] = {}
    wide = {seat // 4096 for seat in seats if dice.random() < 0.0005}
    for seat in sorted(seats):
        level = 4096 if seat // 4096 in wide else 64
        cut.setdefault((level, seat // level), []).append(seat)
    return list(cut.values())


def same(one: Partial, other: Partial) -> bool:
    return (
        torch.equal(one.sums.flat.view(torch.int32), other.sums.flat.view(torch.int32))
        and torch.equal(one.counters, other.counters)
        and one._notes() == other._notes()
        and list(one.sums.scalars) == list(other.sums.scalars)
    )


def through_bytes(part: Partial, make: Callable[[], Partial]) -> Partial:
    packed, other = part.pack(), make()
    other.unpack(packed.package, memoryview(b"".join(bytes(piece) for piece in packed.pieces)))
    return other


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


@pytest.mark.parametrize("seats", SEATS.values(), ids=SEATS)
def test_at_once_in_parts_and_by_hand_are_the_same_bits(fleet: Fleet, seats: Sequence[int]) -> None:
    at_once, dice = fleet.folded(seats), random.Random(len(seats))
    counting = [seat for seat in seats if fleet.update(seat).samples]
    weights = {seat: np.float32(fleet.update(seat).samples) for seat in counting}
    deltas = [fleet.update(seat).tensor(Kind.DELTA).numpy() for seat in range(FILES)]
    expected = by_hand(counting, lambda seat: weights[seat] * deltas[seat % FILES] + np.float32(0))
    assert at_once.sums.vectors["delta"].numpy().tobytes() == expected.tobytes()
    assert at_once.loss == by_hand(
        seats, lambda seat: fleet.update(seat).samples * fleet.update(seat).scalars["loss"]
    )
    assert at_once.sums.updates == len(counting)
    assert at_once.seats == sorted(seats)
    parts = [through_bytes(fleet.folded(node), fleet.fold().make) for node in nodes_of(seats, dice)]
    dice.shuffle(parts)
    assert same(joined(parts, fleet.fold().make), at_once)


def test_up_to_64_seats_are_one_sequence(fleet: Fleet) -> None:
    total = np.zeros(NUMBERS, np.float32)
    for seat in range(64):
        update = fleet.update(seat)
        total += np.float32(update.samples) * update.tensor(Kind.DELTA).numpy()
    assert fleet.folded(range(64)).sums.vectors["delta"].numpy().tobytes() == total.tobytes()


def test_folding_ahead_and_a_restart_leave_no_trace(fleet: Fleet) -> None:
    """The fold runs ahead as updates arrive; a new process folds what lies in the spool; some never come."""
    seats = with_gaps(200, upto=400)
    fold, here, dice, asked = fleet.fold(), dict[int, SpooledUpdate](), random.Random(1), tuple(seats)
    for seat in dice.sample(seats, len(seats)):
        here[seat] = fleet.update(seat)
        if dice.random() < 0.3:
            fold.advance(asked, here)
    assert fold.folded
    late = set(dice.sample(seats, 20))
    for counted in (seats, [seat for seat in seats if seat not in late], seats):
        assert fold.finish(counted, here) == {}
        assert same(fold.total, fleet.folded(counted))


def test_what_comes_after_the_sum_was_closed_begins_it_again(fleet: Fleet) -> None:
    fold = fleet.fold()
    fleet.folded(range(70), fold)
    assert same(fleet.folded(range(140), fold), fleet.folded(range(140)))


def test_as_many_sums_are_kept_as_the_tree_has_levels(fleet: Fleet) -> None:
    made: list[Partial] = []

    def make() -> Partial:
        made.append(Partial({"delta": LAYOUTS.parameters}))
        return made[-1]

    for last, levels in ((63, 1), (64, 2), (4095, 2), (4096, 3)):
        made.clear()
        tree = Tree(make)
        for seat in range(last + 1):
            tree.leaf(seat).seats.append(seat)
        assert tree.root().seats == list(range(last + 1))
        assert len(made) == levels


def test_what_is_no_whole_node_or_comes_too_late_is_refused(fleet: Fleet) -> None:
    make = fleet.fold().make
    for parts in ([range(64), range(64, 4096)], [range(10), range(10, 20)], [range(64, 70), range(5)]):
        tree = Tree(make)
        tree.take(fleet.folded(parts[0]))
        with pytest.raises(ValueError, match=r"whole node|comes after"):
            tree.take(fleet.folded(parts[1]))
    tree.root()
    with pytest.raises(ValueError, match="comes after"):
        tree.leaf(200)


def test_a_node_of_which_nobody_counts_changes_nothing(fleet: Fleet) -> None:
    make = fleet.fold().make
    parts = [make(), fleet.folded(range(3)), make()]
    assert same(joined(parts, make), fleet.folded(range(3)))
    assert joined([make()], make).seats == []


def test_the_rounding_error_of_thousands_is_a_part_of_that_of_a_sequence() -> None:
    terms = torch.randn(4096, 500, generator=torch.Generator().manual_seed(5)).abs()
    tree, sequence = Tree(lambda: Partial({"sum": Layout.single("sum", 500)})), torch.zeros(500)
    for seat, term in enumerate(terms):
        part = tree.leaf(seat)
        part.seats.append(seat)
        part.sums.vectors["sum"].add_(term)
        sequence.add_(term)
    exact = terms.double().sum(0)
    errors = [float((flat.double() - exact).norm()) for flat in (tree.root().sums.flat, sequence)]
    assert errors[0] < errors[1] / 3


@pytest.mark.parametrize("damage", ["byte", "cut", "layout", "kind"])
def test_a_damaged_part_is_not_taken(fleet: Fleet, damage: str) -> None:
    packed = fleet.folded(range(70)).pack()
    payload, package = bytearray(b"".join(bytes(piece) for piece in packed.pieces)), packed.package
    other = fleet.fold().make()
    if damage == "byte":
        payload[7] ^= 1
    if damage == "cut":
        del payload[-8:]
    if damage == "layout":
        other = Partial({"other": LAYOUTS.parameters}, LAYOUTS.counters)
    if damage == "kind":
        packed = Partial({}).pack()
        payload, package = bytearray(b"".join(bytes(piece) for piece in packed.pieces)), packed.package
    with pytest.raises((CorruptPayload, LayoutMismatch)):
        other.unpack(package, memoryview(payload))


@pytest.mark.parametrize("name", [name for name in registry.names() if not registry.load(name).central])
def test_every_method_that_says_so_is_summed_by_parts(tmp_path: Path, name: str) -> None:
    """Without a state of the server; a second walk is a second call, beside the sum of all."""
    fleet, dice = Fleet(tmp_path, name, clients=300), random.Random(3)
    assert fleet.method.by_parts == (name != "pfedmo")
    if not fleet.method.by_parts:
        return
    seats = with_gaps(150, upto=300)
    at_once, nodes = fleet.folded(seats), nodes_of(seats, dice)
    second, fleet.half.second_walk = fleet.half.second_walk, False
    folds = [fleet.fold() for _ in nodes]
    make = folds[0].make
    total = joined(
        [through_bytes(fleet.folded(*each), make) for each in zip(nodes, folds, strict=True)], make
    )
    if second:
        updates = {seat: fleet.update(seat) for seat in seats}
        walks = [
            fold.walk_again(through_bytes(total, make), node, updates)
            for fold, node in zip(folds, nodes, strict=True)
        ]
        dice.shuffle(walks)
        total.sums.merge(joined(walks, total.beside).sums)
    assert same(total, at_once)
