"""Augmented batches: what may come of a picture, and that a step's repetition brings the same."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from edgeflock.common.datasets.kit.augment import OFF, Augmentation, parse
from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.local import LocalData
from edgeflock.methods.kit.values import Plan
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.service.join import check_ready
from edgeflock.server.start.build import augmentation
from edgeflock.server.start.resolve import resolve
from edgeflock.server.start.samples import TestSet
from edgeflock.v1 import aggregator_pb2 as pb
from support.tiny_run import describe, layouts
from support.training import bench_of, local_of, samples

PLAN = Plan(lr=0.1, batch_size=0, steps=9)  # the whole set in every step
PICTURES = torch.arange(1.0, 1 + 400 * 2 * 4 * 5).view(400, 2, 4, 5)  # no two pixels are the same


def augmented(text: str, *, seat: int = 2, round: int = 1, step: int = 0) -> Tensor:
    """Return what a client makes of the pictures in a step."""
    work = local_of(
        bench_with(text), LocalData(PICTURES, torch.zeros(400).long()), PLAN, round=round, index=seat
    )
    return work.batch_in(round, step).x


def bench_with(text: str) -> Workbench:
    return Workbench(bench_of("mlp", (2, 4, 5)).net, augment=parse(text))


@pytest.mark.parametrize("text", ["none", "flip", "crop:4", "flip,crop:4"])
def test_the_text_of_an_augmentation_parses_to_itself(text: str) -> None:
    assert str(parse(text)) == text
    assert bool(parse(text)) is (text != "none")
    assert parse("crop:4, flip") == Augmentation(flip=True, crop=4)
    assert parse("none") == OFF


@pytest.mark.parametrize(
    "text",
    ["", "flip:2", "crop", "crop:0", "crop:-1", "crop:x", "flip,flip", "none,flip", "turn", "crop:1e"],
)
def test_what_is_no_augmentation_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(BadValue, match=r"--augment is .*, allowed is none, or flip and crop:PIXELS, one of"):
        parse(text)


def test_samples_that_are_no_pictures_are_refused_and_margins_wider_than_them() -> None:
    with pytest.raises(
        BadValue, match="--augment is 'flip', allowed is none: samples are no pictures, their"
    ):
        parse("flip").check((561,))
    with pytest.raises(BadValue, match="allowed is crop:PIXELS with at most 8, the shorter side of the"):
        parse("crop:9").check((1, 8, 28))
    parse("none").check((561,))
    parse("flip,crop:8").check((1, 8, 28))


def test_a_server_refuses_them_before_it_makes_a_directory() -> None:
    config, none = resolve(ServerConfig(augment="crop:4,flip")), torch.zeros(0)
    assert config.augment == "flip,crop:4"
    with pytest.raises(BadValue, match="their shape is 561"):
        augmentation(config, TestSet((561,), 6, none, none))


def test_about_half_of_the_pictures_are_mirrored_and_the_others_stay() -> None:
    found = augmented("flip")
    mirrored = (found == PICTURES.flip(3)).flatten(1).all(1)
    assert (mirrored | (found == PICTURES).flatten(1).all(1)).all()
    assert 160 < mirrored.sum() < 240


def test_a_crop_is_any_piece_of_the_picture_in_its_margin() -> None:
    wide = torch.nn.functional.pad(PICTURES, [2] * 4)
    pieces = [wide[:, :, top : top + 4, left : left + 5] for top in range(5) for left in range(5)]
    found = augmented("crop:2")
    same = torch.stack([(found == piece).flatten(1).all(1) for piece in pieces])
    assert (same.sum(0) == 1).all()
    assert (same.sum(1) > 4).all(), "every place comes up, of 400 each about 16 times"
    mirrored = torch.stack([(found.flip(3) == piece).flatten(1).all(1) for piece in pieces])
    assert not mirrored.any()
    both = augmented("flip,crop:2")
    turned = (both, both.flip(3))
    either = torch.stack([(made == piece).flatten(1).all(1) for piece in pieces for made in turned])
    assert (either.sum(0) == 1).all()


def test_what_is_done_is_a_function_of_seed_seat_round_and_step() -> None:
    base = augmented("flip,crop:4")
    assert torch.equal(base, augmented("flip,crop:4"))
    others = [augmented("flip,crop:4", **{word: 3}) for word in ("round", "step", "seat")]
    assert not any(torch.equal(base, other) for other in others)
    digest = hashlib.sha256(base.numpy().tobytes()).hexdigest()[:16]
    assert digest == "cdd7eb4f281b724d", "and of nothing else: every machine does the same"


@pytest.mark.parametrize("size", [4, 0])
def test_a_step_s_batch_is_the_same_in_its_round_and_when_it_is_asked_for_later(size: int) -> None:
    """As after a client was killed, or in FedADM's next round; what data are kept stays as it was."""
    bench, data = bench_with("flip,crop:2"), samples(10, (2, 4, 5))
    before = data.x.clone()
    work = local_of(bench, data, Plan(lr=0.1, batch_size=size, epochs=2), round=3)
    seen = [(batch.step, batch.x.clone(), batch.y.clone()) for batch in work.batches()]
    later = local_of(bench, data, Plan(lr=0.1, batch_size=size, epochs=2), round=9)
    for step, x, y in seen:
        again = later.batch_in(3, step)
        assert torch.equal(again.x, x)
        assert torch.equal(again.y, y)
    plain = local_of(bench_with("none"), data, Plan(lr=0.1, batch_size=size, epochs=2), round=3)
    assert not any(torch.equal(x, batch.x) for (_, x, _), batch in zip(seen, plain.batches(), strict=True))
    assert torch.equal(data.x, before)
    assert torch.equal(torch.cat([batch.x for batch in work.walk()]), before)


def test_a_client_that_would_not_augment_is_told_to_be_brought_up_to_date() -> None:
    plain = describe(layouts(), 2)
    run, digest = replace(plain, augment="flip"), plain.layouts.parameters.digest
    assert check_ready(pb.Ready(layout_digest=digest), plain) is None
    assert check_ready(pb.Ready(layout_digest=digest, augment="flip"), run) is None
    refused = check_ready(pb.Ready(layout_digest=digest), run)
    assert refused is not None
    assert refused.sentence == (
        "this run augments its pictures (flip), which your edgeflock does not do: bring it up to date"
    )
