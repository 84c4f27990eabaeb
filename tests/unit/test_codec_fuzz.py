"""Decoders are total: whatever bytes come, numbers or CorruptPayload, in bounded memory."""

from __future__ import annotations

import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.choice import parse
from edgeflock.common.payload.codecs.base import BLOCK
from edgeflock.common.payload.codecs.coding import decode_blocks, encode
from edgeflock.common.payload.codecs.sources import MemorySource

TEXTS = ["identity", "fp16", "bf16", "int8", "topk:0.2"]
EVERY = [*TEXTS, *(f"{text}+zstd" for text in TEXTS)]
SIZES = st.one_of(st.integers(0, 40), st.integers(0, 3000), st.sampled_from([65536, 65537, BLOCK, BLOCK + 1]))


def decoded(text: str, data: bytes, elements: int, dtype: str = "float32") -> int | None:
    """Return how many numbers came out, or None if the bytes were refused; anything else is a failure."""
    count = 0
    try:
        for block in decode_blocks(parse(text), MemorySource(data), elements, dtype):
            assert 0 < block.numel() <= BLOCK
            count += block.numel()
    except CorruptPayload:
        return None
    return count


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EVERY), st.binary(max_size=400), SIZES, st.sampled_from(["float32", "int64"]))
def test_arbitrary_bytes_give_numbers_or_a_refusal(text: str, data: bytes, elements: int, dtype: str) -> None:
    assert decoded(text, data, elements, dtype) in (None, elements)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EVERY), st.integers(1, 3000), st.data())
def test_damaged_encodings_give_numbers_or_a_refusal(text: str, elements: int, draw: st.DataObject) -> None:
    """A few bytes of a true encoding are replaced, then it may be cut."""
    generator = torch.Generator().manual_seed(elements)
    flat = torch.randn(elements, generator=generator)
    data = bytearray(b"".join(encode(parse(text), flat, generator).pieces))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.sampled_from([len(data), len(data) - 1, len(data) // 2]))
    assert decoded(text, bytes(data[:cut]), elements) in (None, elements)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTS), st.binary(max_size=400), SIZES.filter(bool))
def test_arbitrary_bytes_inside_a_true_zstd_frame(text: str, data: bytes, elements: int) -> None:
    frame = zstandard.ZstdCompressor(level=1).compress(data)
    assert decoded(f"{text}+zstd", frame, elements) == decoded(text, data, elements)


@pytest.mark.parametrize("text", EVERY)
def test_a_huge_promise_with_few_bytes_costs_nothing(text: str) -> None:
    """2^40 numbers are promised: the decoder holds one block and meets the end."""
    flat = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    data = b"".join(encode(parse(text), flat, torch.Generator().manual_seed(1)).pieces)
    assert decoded(text, data, 1 << 40) is None
