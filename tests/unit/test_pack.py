"""Packing: bundles in order, no copies with identity, and every disagreement with a layout refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs
from torch import Tensor

from edgeflock.common.errors import CorruptPayload, LayoutMismatch
from edgeflock.common.payload.choice import parse
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import Packed, pack, unpack_section
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind

MODEL = Layout.of([("conv.weight", (7, 11, 13)), ("conv.bias", (7,)), ("fc.weight", (10, 333))])
COUNTERS = Layout.single("bn.num_batches_tracked", dtype="int64")
CENTROIDS = Layout.single("centroids", 10, 5)

Bundles = dict[Kind, tuple[Tensor, Layout, CodecChoice]]


def seeded(kind: Kind) -> torch.Generator:
    return torch.Generator().manual_seed(len(kind))


def bundles(codec: str = "identity") -> Bundles:
    generator = torch.Generator().manual_seed(3)
    return {
        Kind.DELTA: (torch.randn(MODEL.elements, generator=generator), MODEL, parse(codec)),
        Kind.COUNTERS: (torch.tensor([5]), COUNTERS, IDENTITY),
        Kind.CENTROIDS: (torch.randn(50, generator=generator), CENTROIDS, IDENTITY),
    }


def packed(codec: str = "identity", change: Callable[[Bundles], None] = lambda _: None) -> Packed:
    content = bundles(codec)
    change(content)
    return pack(content, {"loss": 0.5}, seeded)


def section_bytes(encoded: Packed, kind: Kind) -> memoryview:
    start = encoded.package.offset(kind)
    payload = b"".join(encoded.pieces)
    return memoryview(payload)[start : start + encoded.package.section(kind).size_bytes]


@pytest.mark.parametrize("codec", ["identity", "identity+zstd", "bf16", "int8+zstd", "topk:1"])
def test_every_section_comes_back(codec: str) -> None:
    encoded = packed(codec)
    assert [section.kind for section in encoded.package.sections] == list(bundles())
    for kind, (flat, layout, choice) in bundles(codec).items():
        out = torch.full_like(flat, 9)
        unpack_section(encoded.package.section(kind), layout, section_bytes(encoded, kind), out)
        assert torch.equal(out, flat) or (
            choice.name in ("bf16", "int8") and torch.allclose(out, flat, atol=0.05)
        )


def test_the_package_describes_its_payload() -> None:
    encoded = packed("int8")
    payload = b"".join(encoded.pieces)
    assert encoded.package.size_bytes == encoded.marks.size == len(payload)
    assert encoded.package.crc32c == encoded.marks.value
    assert encoded.package.scalars == {"loss": 0.5}


def test_identity_copies_nothing_however_many_tensors_there_are() -> None:
    many = Layout.of((f"layer{number}", (7, 9)) for number in range(122))
    flat = torch.zeros(many.elements)
    encoded = pack({Kind.MODEL: (flat, many, IDENTITY)}, {}, seeded)
    assert len(encoded.pieces) == 1
    assert np.shares_memory(np.frombuffer(encoded.pieces[0], dtype=np.float32), flat.numpy())


def test_a_generator_is_made_only_for_codecs_that_draw() -> None:
    asked: list[Kind] = []

    def generator_for(kind: Kind) -> torch.Generator:
        asked.append(kind)
        return seeded(kind)

    pack(bundles("fp16"), {}, generator_for)
    assert asked == []
    pack(bundles("int8"), {}, generator_for)
    assert asked == [Kind.DELTA]


def test_clamped_numbers_are_counted_and_said() -> None:
    over = torch.full((CENTROIDS.elements,), torch.finfo(torch.float32).max)
    content: Bundles = {kind: (over, CENTROIDS, parse("bf16")) for kind in (Kind.DELTA, Kind.MOMENTUM)}
    with capture_logs() as logs:
        assert pack(content, {}, seeded).clamped == 100
    assert [(entry["event"], entry["bundle"], entry["numbers"]) for entry in logs] == [
        ("numbers_clamped", "delta", 50),
        ("numbers_clamped", "momentum", 50),
    ]


def test_the_digest_is_that_of_the_content() -> None:
    assert packed().package.digest == packed().package.digest

    def one_number_changed(content: Bundles) -> None:
        content[Kind.DELTA][0][17] += 1

    assert packed(change=one_number_changed).package.digest != packed().package.digest
    assert packed("fp16").package.digest != packed().package.digest
    assert pack(bundles(), {"loss": 0.25}, seeded).package.digest != packed().package.digest


def test_no_bundles_are_a_package_without_bytes() -> None:
    encoded = pack({}, {"loss": 1.0}, seeded)
    assert (encoded.pieces, encoded.package.size_bytes, encoded.package.crc32c) == ([], 0, 0)


def test_a_bundle_without_tensors_has_a_section_without_bytes() -> None:
    nothing = Layout(())
    encoded = pack({Kind.BUFFERS: (torch.zeros(0), nothing, IDENTITY)}, {}, seeded)
    assert encoded.package.section(Kind.BUFFERS).size_bytes == 0
    unpack_section(encoded.package.section(Kind.BUFFERS), nothing, memoryview(b""), torch.zeros(0))


@pytest.mark.parametrize("flat", [torch.zeros(3), torch.zeros(MODEL.elements, dtype=torch.int64)])
def test_a_tensor_unlike_its_layout_is_refused(flat: Tensor) -> None:
    with pytest.raises(LayoutMismatch, match="the delta tensor holds"):
        pack({Kind.DELTA: (flat, MODEL, IDENTITY)}, {}, seeded)
    encoded = packed()
    with pytest.raises(LayoutMismatch, match="the delta tensor holds"):
        unpack_section(encoded.package.section(Kind.DELTA), MODEL, section_bytes(encoded, Kind.DELTA), flat)


def test_a_section_of_another_layout_is_refused() -> None:
    encoded = packed()
    renamed = Layout.of([("other", (MODEL.elements,))])
    data, out = section_bytes(encoded, Kind.DELTA), torch.empty(MODEL.elements)
    with pytest.raises(LayoutMismatch, match=MODEL.digest.hex()):
        unpack_section(encoded.package.section(Kind.DELTA), renamed, data, out)


def test_a_section_with_missing_bytes_is_refused() -> None:
    encoded = packed()
    data, out = section_bytes(encoded, Kind.DELTA)[:-4], torch.empty(MODEL.elements)
    with pytest.raises(CorruptPayload, match="its section says"):
        unpack_section(encoded.package.section(Kind.DELTA), MODEL, data, out)
