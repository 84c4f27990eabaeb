"""The fold: the same bits whatever came first, and what is wrong with an update stays with that update."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgeflock.common.errors import NonFinite
from edgeflock.common.payload.package import Kind, Package, Section
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.base import Accumulators, Method, ServerHalf, Update
from edgeflock.methods.kit.options import Params
from edgeflock.server.learning.fold import SpooledUpdate, finite
from edgeflock.server.learning.learner import Learner
from support.tiny_run import Made, layouts, learner, update, with_number

OF = layouts()


class Bench:
    """One round at the server's arithmetic."""

    def __init__(self, folder: Path, method: str | Method = "fedavg") -> None:
        self.folder = folder
        self.learner: Learner = learner(OF, method=method)
        self.start = self.learner.state.model.clone()
        self.round = self.learner.round(1, range(8), {})
        self.learner._fold.open(self.learner.state, self.round)
        self.updates: dict[int, SpooledUpdate] = {}

    def take(self, index: int, made: Made | None = None) -> None:
        self.updates[index] = (made or update(OF, index)).spooled(index, self.folder, OF)

    def fold(self, counted: Sequence[int]) -> dict[int, Verdict]:
        return self.learner.fold(counted, self.updates)

    def commit(self) -> dict[str, Tensor]:
        self.learner.step(self.round)
        return {name: vector.clone() for name, vector in self.learner.state.vectors.items()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_fedavg_by_hand(bench: Bench) -> None:
    """w + (10 d0 + 30 d2) / 40; buffers likewise; counters: the largest."""
    bench.take(0)
    bench.take(2, update(OF, 2, samples=30))
    assert bench.fold([0, 2]) == {}
    state = bench.commit()
    first, second = bench.updates[0], bench.updates[2]
    expected = bench.start + (10 * first.tensor(Kind.DELTA) + 30 * second.tensor(Kind.DELTA)) / 40
    torch.testing.assert_close(state["model"], expected)
    buffers = (10 * first.tensor(Kind.BUFFERS) + 30 * second.tensor(Kind.BUFFERS)) / 40
    torch.testing.assert_close(state["buffers"], buffers)
    assert state["counters"].tolist() == [12]
    numbers = bench.start.numel() + state["buffers"].numel()
    assert bench.learner.own_operations() == {"server_flops": 2 * 2 * numbers}  # a product and a sum


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_arrival_order_and_folding_ahead_leave_no_trace(data: st.DataObject) -> None:
    """Members arrive in any order, the fold runs ahead at any time, some never count: same bits."""
    members = data.draw(st.lists(st.integers(0, 7), min_size=1, unique=True))
    counted = data.draw(st.lists(st.sampled_from(members), min_size=1, unique=True))
    bad = data.draw(st.lists(st.sampled_from(members), max_size=2, unique=True))
    codec = data.draw(st.sampled_from(["identity", "int8", "fp16+zstd"]))
    with tempfile.TemporaryDirectory() as name:
        made = {index: update(OF, index, samples=index * 7, codec=codec) for index in members}
        if codec == "identity":
            made |= {index: with_number(made[index], 3, float("nan")) for index in bad}
        plain, busy = Bench(Path(name)), Bench(Path(name))
        for index in members:
            plain.take(index, made[index])
        rejected = plain.fold(sorted(counted))
        for index in data.draw(st.permutations(members)):
            busy.take(index, made[index])
            if data.draw(st.booleans()):
                ahead = data.draw(st.sampled_from([members, counted, range(8)]))
                busy.learner.advance(ahead, dict(busy.updates))
        assert busy.fold(data.draw(st.permutations(counted))) == rejected
        assert same(busy.commit(), plain.commit())


def test_an_empty_client_takes_part_without_weight(bench: Bench) -> None:
    """Not in |S|, not in the mean of the buffers, and its counters are not looked at."""
    bench.take(1)
    bench.take(3, update(OF, 3, samples=0, scalars={"loss": float("nan")}))
    assert bench.fold([1, 3]) == {}
    assert bench.learner._fold.total.sums.updates == 1
    with_empty = bench.commit()
    alone = Bench(bench.folder)
    alone.take(1)
    alone.fold([1])
    assert same(with_empty, alone.commit())


def test_a_round_of_empty_clients_changes_nothing(bench: Bench) -> None:
    before = {name: vector.clone() for name, vector in bench.learner.state.vectors.items()}
    bench.take(0, update(OF, 0, samples=0))
    assert bench.fold([0]) == {}
    assert same(bench.commit(), before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("position", [0, 39, 41])
def test_a_non_finite_update_is_named_and_left_out(bench: Bench, value: float, position: int) -> None:
    """Also in its buffers (position 41)."""
    for index in range(3):
        bench.take(index)
    bench.take(1, with_number(update(OF, 1), position, value))
    assert bench.fold([0, 1, 2]) == {1: Verdict.NON_FINITE}
    clean = Bench(bench.folder)
    for index in (0, 2):
        clean.take(index)
    clean.fold([0, 2])
    assert same(bench.commit(), clean.commit())


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_non_finite_scalar_is_named(bench: Bench, loss: float) -> None:
    for index in range(3):
        bench.take(index)
    bench.take(2, update(OF, 2, scalars={"loss": loss}))
    assert bench.fold([0, 1, 2]) == {2: Verdict.NON_FINITE}


def test_infinities_that_cancel_are_still_found(bench: Bench) -> None:
    """inf + -inf is NaN, which does not leave a sum again."""
    bench.take(0, with_number(update(OF, 0), 5, float("inf")))
    bench.take(1, with_number(update(OF, 1), 5, -float("inf")))
    bench.take(2)
    assert bench.fold([0, 1, 2]) == {0: Verdict.NON_FINITE, 1: Verdict.NON_FINITE}


def test_a_sum_that_overflows_without_anybody_being_wrong_is_a_failure(bench: Bench) -> None:
    for index in range(2):
        bench.take(index, with_number(update(OF, index), 0, 3e38))
    with pytest.raises(NonFinite, match="every update is finite, but their sum is not"):
        bench.fold([0, 1])


def broken(index: int, size: int = -8) -> Made:
    """An update whose bytes no encoder has written: the zstd frame of its delta is cut."""
    made = update(OF, index, codec="int8+zstd")
    first, *rest = made.package.sections
    cut = first.size_bytes + size
    payload = made.payload[:cut] + made.payload[first.size_bytes :]
    section = Section(first.kind, first.layout_digest, first.codec, first.elements, cut)
    return Made(Package((section, *rest), made.package.scalars), payload)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_malformed_update_is_named_and_left_out(bench: Bench, ahead: bool) -> None:
    for index in range(4):
        bench.take(index, broken(index) if index in (0, 2) else None)
    if ahead:
        bench.learner.advance(tuple(range(4)), bench.updates)
    assert bench.fold([0, 1, 2, 3]) == {0: Verdict.MALFORMED, 2: Verdict.MALFORMED}
    clean = Bench(bench.folder)
    for index in (1, 3):
        clean.take(index)
    clean.fold([1, 3])
    assert same(bench.commit(), clean.commit())


def test_malformed_and_non_finite_in_one_round(bench: Bench) -> None:
    bench.take(0, broken(0))
    bench.take(1, with_number(update(OF, 1), 0, float("nan")))
    bench.take(2)
    assert bench.fold([0, 1, 2]) == {0: Verdict.MALFORMED, 1: Verdict.NON_FINITE}


def test_a_malformed_update_that_does_not_count_is_not_named(bench: Bench) -> None:
    bench.take(0, broken(0))
    bench.take(1)
    bench.learner.advance(range(2), bench.updates)
    assert bench.fold([1]) == {}


def test_hundreds_of_malformed_updates_are_left_out(bench: Bench) -> None:
    """As many as the interpreter allows nested calls, and more."""
    bad = broken(0).spooled(0, bench.folder, OF)
    for index in range(1200):
        bench.updates[index] = SpooledUpdate(index, bad.package, bad._path, bad._layouts)
    bench.take(1200)
    assert len(bench.fold(range(1201))) == 1200


def test_the_next_round_starts_from_nothing(bench: Bench) -> None:
    bench.take(0, broken(0))
    bench.take(1)
    bench.fold([0, 1])
    bench.learner._fold.open(bench.learner.state, bench.round)
    bench.take(0)
    assert bench.fold([0, 1]) == {}
    assert bench.learner._fold.folded == [0, 1]


class TwoWalks(ServerHalf[Params]):
    """Sums the deltas, then counts in a second walk how many numbers lie above that sum."""

    second_walk = True

    def second(self, sums: Accumulators, update: Update, weight: float) -> None:
        above = float((update.tensor(Kind.DELTA) > sums.vectors["delta"]).sum())
        sums.count("above", above * weight)


def test_a_second_walk_sees_the_complete_sum_and_every_update_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Method(name="two", summary="", server=TwoWalks))
    for index in (2, 0, 1):
        bench.take(index)
        bench.learner.advance(range(3), dict(bench.updates))
    bench.take(3, update(OF, 3, samples=0))
    bench.fold([0, 1, 2, 3])
    deltas = [bench.updates[index].tensor(Kind.DELTA) for index in range(3)]
    total = bench.learner._fold.total.sums.vectors["delta"]
    assert bench.learner._fold.total.sums.scalars["above"] == sum(
        10.0 * float((d > total).sum()) for d in deltas
    )


def test_finiteness_of_sums_that_overflow_is_looked_at_closely() -> None:
    assert finite(torch.full((4,), 3e38))
    assert finite(torch.zeros(0))
    assert finite(torch.tensor([2**62]))
    assert not finite(torch.tensor([1.0, float("nan")]))
    assert not finite(torch.tensor([float("inf"), -float("inf")]))
