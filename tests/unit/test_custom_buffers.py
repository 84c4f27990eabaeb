"""What foreign models keep in buffers: which travel, which stay, and that no client finds another's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgeflock.common import constants
from edgeflock.common.errors import BadValue, LayoutMismatch
from edgeflock.common.flat import FlatModel
from edgeflock.common.foreign import ForeignError, foreign
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.payload.constant import Constant, compare
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import ClientHalf, Params, Plan
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.local import Local
from edgeflock.methods.kit.values import Setting
from edgeflock.methods.kit.workbench import Workbench

SHAPE, CLASSES = (6,), 3
Received = dict[Kind, Tensor]


def net(name: str) -> Net:
    return models.build_custom(f"support.custom_models:{name}", input_shape=SHAPE, classes=CLASSES, seed=1)


def names(flat: FlatModel) -> tuple[list[str], list[str], list[str]]:
    """What is averaged, what is counted, and what stays."""
    layouts = flat.layouts
    moving = [[spec.name for spec in part.tensors] for part in (layouts.buffers, layouts.counters)]
    return moving[0], moving[1], sorted(flat.constants)


def start(bench: Workbench) -> Received:
    model = bench.model
    return {
        Kind.MODEL: model.params.clone(),
        Kind.BUFFERS: model.buffers.clone(),
        Kind.COUNTERS: model.counters.clone(),
    }


def trained(bench: Workbench, received: Received, seat: int, seed: int = 7) -> Received:
    """One local round of a client."""
    torch.manual_seed(seed)  # the global generator: nothing may depend on it
    drawn = torch.Generator().manual_seed(seat)
    data = LocalData(torch.rand(12, *SHAPE, generator=drawn), torch.arange(12) % CLASSES)
    plan = Plan(lr=0.1, epochs=2, batch_size=5)
    work = Local(bench, data, plan, seed=3, seat=seat, round=1, received=received)
    half = ClientHalf(Params(), Setting(bench.model.layout, CLASSES, bench.net.features, 2, 3))
    bundles = steps.run(half, work)
    found = {
        Kind.DELTA: bundles[Kind.DELTA],
        Kind.BUFFERS: bench.model.buffers,
        Kind.COUNTERS: bench.model.counters,
    }
    return {kind: tensor.clone() for kind, tensor in found.items()}


def equal(one: Mapping[Kind, Tensor], other: Mapping[Kind, Tensor]) -> bool:
    return all(torch.equal(one[kind], other[kind]) for kind in one)


def test_only_what_a_training_step_changes_travels() -> None:
    flat = FlatModel(net("masked"))
    assert names(flat) == (
        ["mean", "norm.running_mean", "norm.running_var"],
        ["norm.num_batches_tracked"],
        ["mask", "table", "window"],
    )
    assert bool(flat.buffers.isfinite().all())
    assert names(FlatModel(net("initialised"))) == ([], ["initialised", "seen", "batches"], ["order"])


@pytest.mark.parametrize("name", ["masked", "initialised", "shared"])
def test_a_hosted_client_trains_as_in_a_process_of_its_own(name: str) -> None:
    alone, hosted = (Workbench(net(name)) for _ in range(2))
    received = start(alone)
    own = trained(alone, received, seat=1)
    trained(hosted, received, seat=0)
    assert equal(own, trained(hosted, received, seat=1, seed=8))
    kept = [made for _, made in sorted(hosted.model.constants.items())]
    fresh = [made for _, made in sorted(FlatModel(net(name)).constants.items())]
    assert all(map(torch.equal, kept, fresh))


def test_what_a_module_puts_in_a_buffers_place_travels() -> None:
    bench = Workbench(net("masked"))
    sent = trained(bench, start(bench), seat=0)
    assert float(sent[Kind.BUFFERS][:6].abs().min()) > 0
    counted = Workbench(net("initialised"))
    assert trained(counted, start(counted), seat=0)[Kind.COUNTERS].tolist() == [1, 1, 6]


def test_what_was_initialised_in_a_round_before_is_not_again() -> None:
    bench = Workbench(net("initialised"))
    received = start(bench)
    received[Kind.COUNTERS] = torch.tensor([1, 1, 6])
    assert float(trained(bench, received, seat=0)[Kind.DELTA][0].abs()) < 0.5


def test_a_shared_buffer_stays_shared() -> None:
    made = net("shared")
    flat = FlatModel(made)
    assert "two.running_mean" not in names(flat)[0]
    assert (
        made.get_submodule("one")._buffers["running_mean"]
        is made.get_submodule("two")._buffers["running_mean"]
    )
    bench = Workbench(made)
    with bench.at(bench.params, torch.ones_like(bench.model.buffers)):
        one, two = (made.get_submodule(name)._buffers["running_mean"] for name in ("one", "two"))
        assert one is two
        assert one is not None
        assert one.tolist() == [1] * 6


def test_a_dropout_in_two_places_is_replaced_in_both_by_one() -> None:
    made = net("shared")
    assert made.get_submodule("first")[1] is made.get_submodule("second")[1]  # type: ignore[index]
    assert not any(isinstance(module, nn.Dropout) for module in made.modules())


class Complex(nn.Module):
    turn: Tensor

    def __init__(self, *, as_buffer: bool) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        turn = torch.ones(4, dtype=torch.complex64)
        if as_buffer:
            self.register_buffer("turn", turn)
        else:
            self.register_parameter("turn", nn.Parameter(turn))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last((x * self.turn).real)
        return logits


@pytest.mark.parametrize("as_buffer", [False, True])
def test_complex_numbers_are_refused(as_buffer: bool) -> None:
    with pytest.raises(BadValue, match=r"a model of real numbers \(turn is complex"):
        adapt(Complex(as_buffer=as_buffer), (4,), "mine:factory")


def test_constants_are_compared_and_a_processors_last_bits_do_not_count() -> None:
    table = torch.sin(torch.arange(4096.0)).reshape(64, 64)
    mask = torch.zeros(8, 8).fill_diagonal_(float("-inf"))
    here = constants.described({"mask": mask, "table": table})
    compare(here, constants.described({"mask": mask, "table": torch.nextafter(table, torch.ones(()))}))
    other = {
        "one bit of a mask": {"mask": mask.flip(0), "table": table},
        "random numbers": {"mask": mask, "table": torch.sin(torch.arange(4096.0) + 1).reshape(64, 64)},
        "another order": {"mask": mask, "table": table.flip(0)},
        "another shape": {"mask": mask, "table": table.reshape(32, 128)},
        "one is missing": {"table": table},
    }
    for there in other.values():
        with pytest.raises(LayoutMismatch, match=r"in the constant buffer '(mask|table)'"):
            compare(here, constants.described(there))


@pytest.mark.parametrize(
    "error", [ValueError, IndexError, TypeError, AssertionError, KeyError, SystemExit, OSError]
)
def test_whatever_foreign_code_raises_is_a_sentence_with_its_words_and_its_line(
    error: type[BaseException],
) -> None:
    place = r"\(test_custom_buffers.py:\d+\)"
    with pytest.raises(ForeignError, match=rf"training failed: {error.__name__}: no such thing {place}$"):
        _call(error)


def _call(error: type[BaseException]) -> None:
    with foreign("training"):
        raise error("no such thing\nand more")


def test_a_model_that_cannot_be_made_or_tried_is_refused_with_its_line() -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            table: dict[int, Tensor] = {}
            return table[len(x)]

    with pytest.raises(
        BadValue, match=r"takes an input of shape \(4,\) \(KeyError: 1 \(test_custom_buffers.py:"
    ):
        adapt(Wrong(), (4,), "mine:factory")


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ({}, True),
        ({"digest": b"last bits"}, True),
        ({"digest": b"last bits", "total": 1.0 + 1e-7}, True),
        ({"digest": b"others", "total": 1.1}, False),
        ({"digest": b"others", "special": b"a NaN elsewhere"}, False),
        ({"digest": b"others", "shape": (3,)}, False),
        ({"name": "another"}, False),
    ],
)
def test_constants_are_the_same_but_for_the_last_bits_of_their_numbers(
    other: dict[str, Any], alike: bool
) -> None:
    mine = Constant("table", (2,), b"digest", b"special", 1.0, 1.0)
    for one, its in ((mine, replace(mine, **other)), (replace(mine, **other), mine)):
        if alike:
            compare([one], [its])
        else:
            with pytest.raises(LayoutMismatch, match="differ in the constant buffer"):
                compare([one], [its])


def test_zeros_of_another_sign_are_the_same_constants() -> None:
    mine = Constant("table", (2,), b"digest", b"special", 0.0, 0.0)
    compare([mine], [replace(mine, digest=b"minus zero")])
