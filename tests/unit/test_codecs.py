"""Codecs: round trips within their error bounds, non-finite numbers, determinism, and their choice."""

from __future__ import annotations

import math
import random
import tempfile
import tracemalloc

import pytest
import torch
import zstandard
from torch import Tensor

from edgeflock.common.errors import BadData, BadValue, CorruptPayload, UnknownName
from edgeflock.common.payload.choice import for_kind, parse
from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.codecs.base import BLOCK
from edgeflock.common.payload.codecs.coding import CODECS, decode_blocks, decode_into, encode, largest
from edgeflock.common.payload.codecs.int8 import ROW
from edgeflock.common.payload.codecs.sources import FileSource, MemorySource
from edgeflock.common.payload.codecs.topk import CELL, kept
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind

PLAIN = ["identity", "fp16", "bf16", "int8", "topk:0.1"]
EVERY = [*PLAIN, *(f"{text}+zstd" for text in PLAIN)]
EDGES = [edge + near for edge in (ROW, CELL, BLOCK) for near in (-1, 0, 1)]
SIZES = [*range(1, 2 * (122 - len(EDGES)), 2), *EDGES]


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(count: int, scale: float = 1e-3) -> Tensor:
    return torch.randn(count, generator=seeded(count)) * scale


def coded_bytes(text: str, flat: Tensor, seed: int = 5) -> bytes:
    return b"".join(encode(parse(text), flat, seeded(seed)).pieces)


def round_trip(text: str, flat: Tensor, seed: int = 5) -> Tensor:
    out = torch.full_like(flat, 7)
    decode_into(parse(text), coded_bytes(text, flat, seed), out)
    return out


def error_bound(text: str, flat: Tensor) -> Tensor:
    """Return the largest error that the codec may make for each number."""
    match parse(text).name:
        case "fp16":  # half a unit in the last place, or half the smallest subnormal of the scaled block
            return flat.abs() * 2.0**-11 + float(flat.abs().max()) * 2.0**-40
        case "bf16":
            return flat.abs() * 2.0**-8
        case "int8":  # one step of the row
            rows = [flat[start : start + ROW].abs() for start in range(0, flat.numel(), ROW)]
            return torch.cat([row.max().expand(row.numel()) for row in rows]) / 127 * 1.001
        case "topk":  # what is not sent is no larger than the smallest that is
            count = kept(flat.numel(), parse(text).fraction)
            return flat.abs().topk(count).values[-1].expand(flat.numel())
        case _:
            return torch.zeros_like(flat)


def test_there_are_122_odd_sizes() -> None:
    assert len(SIZES) == len(set(SIZES)) == 122


@pytest.mark.parametrize("text", EVERY)
def test_every_size_comes_back_within_the_error_bound(text: str) -> None:
    for size in SIZES:
        flat = numbers(size)
        error = (round_trip(text, flat) - flat).abs()
        assert bool((error <= error_bound(text, flat)).all()), size


@pytest.mark.parametrize("text", EVERY)
def test_no_encoding_is_larger_than_stated(text: str) -> None:
    for size in SIZES:
        assert len(coded_bytes(text, numbers(size))) <= largest(parse(text), size)


@pytest.mark.parametrize("text", EVERY)
def test_nothing_becomes_no_bytes(text: str) -> None:
    empty = torch.zeros(0)
    assert encode(parse(text), empty, seeded()).pieces == []
    assert largest(parse(text), 0) == 0
    decode_into(parse(text), b"", empty)
    with pytest.raises(CorruptPayload, match=r"1 bytes for 0 numbers|after the last number|what zstd writes"):
        decode_into(parse(text), b"x", empty)


@pytest.mark.parametrize("text", EVERY)
def test_zeros_stay_zeros(text: str) -> None:
    assert round_trip(text, torch.zeros(3000)).count_nonzero() == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", EVERY)
def test_a_non_finite_number_stays_visible(text: str, bad: float) -> None:
    """Wherever it stands, and beside a number so large that it would be clamped."""
    for place in (0, 1500, 2999):
        flat = numbers(3000)
        flat[7] = 3.4e38
        flat[place] = bad
        assert not torch.isfinite(round_trip(text, flat)).all()


@pytest.mark.parametrize("text", PLAIN)
def test_finite_numbers_stay_finite(text: str) -> None:
    largest_float = torch.finfo(torch.float32).max
    for extreme in (largest_float, -largest_float, 1e-45, 2.0**-126, 65519.9, 65520.0):
        assert torch.isfinite(round_trip(text, torch.tensor([extreme, 1.0, 0.0]))).all()


def test_the_blocks_of_a_file_are_those_of_memory() -> None:
    """A part of a shared file, at an odd offset, in blocks of at most BLOCK numbers."""
    flat = numbers(BLOCK + 4321)
    for text in EVERY:
        data = coded_bytes(text, flat)
        with tempfile.TemporaryFile() as file:
            file.write(b"abc" + data + b"behind")
            file.flush()
            source = FileSource(file.fileno(), 3, len(data))
            blocks = [block.clone() for block in decode_blocks(parse(text), source, flat.numel())]
        assert [block.numel() for block in blocks] == [BLOCK, 4321]
        assert torch.equal(torch.cat(blocks), round_trip(text, flat))


def test_a_file_that_ends_too_early_is_refused() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(100))
        file.flush()
        with pytest.raises(CorruptPayload, match="the file ends 300 bytes before"):
            list(decode_blocks(IDENTITY, FileSource(file.fileno(), 0, 400), 100))


# ------------------------------------------------------------------------------------------- each codec's own


def test_identity_is_the_tensors_own_memory() -> None:
    flat = numbers(100)
    (piece,) = encode(IDENTITY, flat).pieces
    flat[3] = 42.0
    assert torch.frombuffer(bytearray(piece), dtype=torch.float32)[3] == 42.0


def test_identity_carries_integers_and_nothing_else_does() -> None:
    flat = torch.tensor([1, -(2**62), 3])
    assert torch.equal(round_trip("identity", flat), flat)
    assert torch.equal(round_trip("identity+zstd", flat), flat)
    with pytest.raises(BadData, match=r"cannot code torch.int64"):
        encode(parse("bf16"), flat)
    with pytest.raises(CorruptPayload, match="bf16 cannot hold int64"):
        list(decode_blocks(parse("bf16"), MemorySource(bytes(24)), 3, "int64"))


def test_fp16_scales_deltas_that_would_be_subnormal() -> None:
    flat = numbers(10_000, scale=1e-6)
    error = (round_trip("fp16", flat) - flat).abs()
    plain_error = (flat.half().float() - flat).abs()
    assert float(error.mean()) < 0.02 * float(plain_error.mean())


def test_fp16_clamps_and_counts_what_would_round_to_infinity() -> None:
    over = 2.0**10 * (1 - 2.0**-13)  # rounds up to the next power of two
    coded = encode(parse("fp16"), torch.tensor([over, -over, 1.0, over * 0.99]))
    assert coded.clamped == 2
    decoded = round_trip("fp16", torch.tensor([over, -over, 1.0, over * 0.99]))
    assert decoded[:3].tolist() == [2.0**10 * (1 - 2.0**-11), -(2.0**10) * (1 - 2.0**-11), 1.0]


def test_bf16_clamps_and_counts_what_would_round_to_infinity() -> None:
    largest_float = torch.finfo(torch.float32).max
    flat = torch.tensor([largest_float, -largest_float, 1.0, math.inf])
    assert encode(parse("bf16"), flat).clamped == 2
    top = torch.finfo(torch.bfloat16).max
    assert round_trip("bf16", flat).tolist() == [top, -top, 1.0, math.inf]


def test_bf16_rounds_to_nearest_even() -> None:
    half = 2.0**-8  # half a step at 1
    flat = torch.tensor([1 + half, 1 + 3 * half, 1 + half * 1.01])
    assert round_trip("bf16", flat).tolist() == [1.0, 1 + 4 * half, 1 + 2 * half]


def test_int8_is_unbiased() -> None:
    """The mean of a million draws lies within four standard errors, for shares low, middle and high."""
    for share in (0.001, 0.3, 0.5, 0.97, -0.25):
        flat = torch.full((1 << 20,), share)
        flat[::ROW] = 127.0  # the step of every row is 1
        drawn = round_trip("int8", flat).view(-1, ROW)[:, 1:]
        part = share - math.floor(share)
        assert abs(float(drawn.double().mean()) - share) < 4 * math.sqrt(part * (1 - part) / drawn.numel())
        assert set(drawn.flatten().tolist()) == {math.floor(share), math.floor(share) + 1.0}


def test_int8_depends_on_its_generator_alone() -> None:
    flat = numbers(5000)
    torch.manual_seed(1)
    first = coded_bytes("int8", flat)
    torch.manual_seed(2)
    assert coded_bytes("int8", flat) == first
    assert coded_bytes("int8", flat, seed=6) != first
    with pytest.raises(ValueError, match="generator"):
        encode(parse("int8"), flat)


def test_int8_keeps_the_tiniest_numbers_unbiased() -> None:
    """A row of subnormal numbers has a step that is not zero."""
    flat = torch.full((1 << 18,), 1e-39)
    assert float(round_trip("int8", flat).double().mean()) == pytest.approx(1e-39, rel=0.05)


def test_topk_sends_the_largest_and_the_first_of_equals() -> None:
    flat = torch.tensor([1.0, -5.0, 2.0, 2.0, 0.0, 2.0])
    assert round_trip("topk:0.5", flat).tolist() == [0.0, -5.0, 2.0, 2.0, 0.0, 0.0]
    assert round_trip("topk:1", flat).tolist() == flat.tolist()
    assert len(coded_bytes("topk:1", flat)) == 4 + 5 * 6  # the zero is not sent


def test_topk_with_error_feedback_loses_nothing() -> None:
    """What was sent over twenty rounds and what is left are together what there was."""
    left, sent, total = torch.zeros(2000), torch.zeros(2000), torch.zeros(2000)
    for number in range(20):
        delta = torch.randn(2000, generator=seeded(number))
        total += delta
        flat = delta + left
        decoded = round_trip("topk:0.05", flat)
        assert int(decoded.count_nonzero()) == 100
        left = coding.residual(flat, decoded)
        sent += decoded
    assert torch.allclose(sent + left, total, atol=1e-4)


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5, math.nan])
def test_topk_needs_a_fraction(fraction: float) -> None:
    with pytest.raises(BadValue, match=r"a number in \(0, 1\]"):
        encode(CodecChoice("topk", fraction=fraction), numbers(10))


@pytest.mark.parametrize("power", [-149, -140, -127, -126, -112, -111, -110, -109, 0, 126, 127])
def test_fp16_takes_back_whatever_it_has_encoded(power: int) -> None:
    """From the smallest number of float32 to the largest power of two."""
    flat = torch.tensor([2.0**power, -(2.0**power), 0.0])
    assert torch.equal(round_trip("fp16", flat), flat)


# ------------------------------------------------------------------------------------------- damaged bytes


@pytest.mark.parametrize("text", EVERY)
def test_a_truncated_payload_is_refused(text: str) -> None:
    flat = numbers(5000)
    data = coded_bytes(text, flat)
    for size in (0, 1, 5, len(data) // 2, len(data) - 8):
        with pytest.raises(CorruptPayload, match=r"end too early|bytes for 5000 numbers|what zstd writes"):
            decode_into(parse(text), data[:size], torch.empty(5000))


@pytest.mark.parametrize("text", EVERY)
def test_bytes_after_the_end_are_refused_before_the_last_block(text: str) -> None:
    flat = numbers(BLOCK + 9)
    source = MemorySource(coded_bytes(text, flat) + b"12345678")
    blocks = decode_blocks(parse(text), source, flat.numel())
    assert next(blocks).numel() == BLOCK
    with pytest.raises(CorruptPayload, match=r"after the last number|what zstd writes"):
        next(blocks)


@pytest.mark.parametrize("text", EVERY)
def test_another_number_of_elements_is_refused(text: str) -> None:
    data = coded_bytes(text, numbers(CELL + 500))
    for elements in (1, CELL, 3 * CELL, BLOCK + 1):
        with pytest.raises(CorruptPayload):
            decode_into(parse(text), data, torch.empty(elements))


@pytest.mark.parametrize("exponent", [-113, 127, 32767, -32768])
def test_an_exponent_that_no_encoder_writes_is_refused(exponent: int) -> None:
    data = exponent.to_bytes(2, "little", signed=True) + bytes(2)
    with pytest.raises(CorruptPayload, match="exponent"):
        decode_into(parse("fp16"), data, torch.empty(1))


@pytest.mark.parametrize("places", [[3, 2], [2, 2], [1, 10], [65535, 65535]])
def test_topk_positions_out_of_order_or_range_are_refused(places: list[int]) -> None:
    data = b"\2\0\0\0" + b"".join(place.to_bytes(2, "little") for place in places) + bytes(8)
    with pytest.raises(CorruptPayload, match="ascending"):
        decode_into(parse("topk:1"), data, torch.empty(10))


@pytest.mark.parametrize("text", ["topk:1", "topk:1+zstd"])
def test_topk_entries_beyond_their_cell_are_refused_before_they_are_read(text: str) -> None:
    data = b"\xff\xff\xff\xff" + bytes(100)
    data = zstandard.ZstdCompressor(level=1).compress(data) if parse(text).zstd else data
    with pytest.raises(CorruptPayload, match="states 4294967295 entries"):
        decode_into(parse(text), data, torch.empty(10))


def test_a_zstd_bomb_is_never_inflated() -> None:
    """A gigabyte of zeros for ten numbers: refused with a few kilobytes of memory."""
    bomb = zstandard.ZstdCompressor(level=1).compressobj()
    data = b"".join([*(bomb.compress(bytes(1 << 20)) for _ in range(1024)), bomb.flush()])
    tracemalloc.start()
    try:
        with pytest.raises(CorruptPayload, match=r"after the last number"):
            decode_into(parse("identity+zstd"), data, torch.empty(10))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_that_wants_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    wide = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = wide.compress(bytes(40)) + wide.flush()
    with pytest.raises(CorruptPayload, match="zstd"):
        decode_into(parse("identity+zstd"), data, torch.empty(10))


# ------------------------------------------------------------------------------------------- choice


@pytest.mark.parametrize("text", EVERY)
def test_a_choice_reads_back_as_it_is_written(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse("topk:0.0123456789"))).fraction == 0.0123456789


@pytest.mark.parametrize(
    "text",
    [
        "topk",
        "topk:",
        "topk:0",
        "topk:2",
        "topk:nan",
        "topk:x",
        "fp16:0.5",
        "int8+",
        "int8+gzip",
        "int8+zstd+",
    ],
)
def test_a_choice_outside_what_is_allowed_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="topk:FRACTION"):
        parse(text)


def test_an_unknown_codec_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fp16'"):
        parse("fp61")


def test_a_codec_goes_only_to_the_kinds_it_suits() -> None:
    """Absolute parameters keep 16 bits, states 8, deltas alone are thinned out, all else is exact."""
    suited = {
        text: {kind for kind in Kind if for_kind(parse(text), kind) == parse(text)}
        for text in ("fp16", "bf16+zstd", "int8+zstd", "topk:0.1")
    }
    states = {Kind.DELTA, Kind.MOMENTUM, Kind.CONTROL, Kind.GRADIENT}
    assert suited["fp16"] == suited["bf16+zstd"] == {Kind.MODEL, Kind.ANCHOR, *states}
    assert suited["int8+zstd"] == states
    assert suited["topk:0.1"] == {Kind.DELTA}
    assert for_kind(parse("topk:0.1+zstd"), Kind.MOMENTUM) == IDENTITY


def test_a_wire_value_without_a_codec_is_found_at_import() -> None:
    here = {codec.wire for codec in CODECS.values()}
    coding.check_complete({0, *here})
    for wrong in ({0, *here, 99}, {0, *random.sample(sorted(here), len(here) - 1)}):
        with pytest.raises(RuntimeError, match="differ"):
            coding.check_complete(wrong)
