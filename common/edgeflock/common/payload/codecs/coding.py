"""A bundle's numbers as bytes and back, in the codec that was chosen."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgeflock.common.errors import BadData, CorruptPayload
from edgeflock.common.payload.checksum import Buffer
from edgeflock.common.payload.choice import NAMES
from edgeflock.common.payload.codecs.base import ByteSource, Codec, Encoded
from edgeflock.common.payload.codecs.bf16 import Bf16
from edgeflock.common.payload.codecs.fp16 import Fp16
from edgeflock.common.payload.codecs.identity import Identity, exact
from edgeflock.common.payload.codecs.int8 import Int8
from edgeflock.common.payload.codecs.sources import MemorySource
from edgeflock.common.payload.codecs.topk import TopK
from edgeflock.common.payload.codecs.zstd import Inflated, bound, deflate
from edgeflock.common.payload.layout import ITEM_BYTES
from edgeflock.common.payload.memory import memory
from edgeflock.common.payload.package import CodecChoice
from edgeflock.v1 import bundle_pb2

CODECS: dict[str, Codec] = {codec.name: codec for codec in (Identity(), Fp16(), Bf16(), Int8(), TopK())}
TORCH = {"float32": torch.float32, "int64": torch.int64}


def check_complete(wire_values: set[int]) -> None:
    """Raise unless the wire's enum, the codecs here and the operator's names are the same set."""
    here = {codec.wire for codec in CODECS.values()}
    if here != wire_values - {bundle_pb2.CODEC_UNSPECIFIED} or set(CODECS) != set(NAMES):
        raise RuntimeError(f"codecs {sorted(here)} and the wire's enum {sorted(wire_values)} differ")


check_complete(set(bundle_pb2.Codec.values()))


def encode(choice: CodecChoice, flat: Tensor, generator: torch.Generator | None = None) -> Encoded:
    """Return a flat tensor's bytes; with identity they are its own memory, unchanged until sent.

    Raises BadData for a tensor that the codec cannot code.
    """
    if flat.dtype != torch.float32 and (choice.name != "identity" or flat.dtype != torch.int64):
        raise BadData(f"codec {choice.name} cannot code {flat.dtype}")
    if not flat.numel():
        return Encoded([])
    flat = flat.detach().reshape(-1).to("cpu").contiguous()
    coded = CODECS[choice.name].encode(flat, generator=generator, fraction=choice.fraction)
    return Encoded(deflate(coded.pieces), coded.clamped) if choice.zstd else coded


def decode_blocks(
    choice: CodecChoice, source: ByteSource, elements: int, dtype: str = "float32"
) -> Iterator[Tensor]:
    """Yield the decoded numbers in blocks of at most BLOCK, each valid until the next.

    Raises CorruptPayload if the source does not hold exactly so many numbers, before the last block is given.
    """
    if not elements:
        _expect_end(source)
        return
    plain: ByteSource = Inflated(source) if choice.zstd else source
    done = 0
    for block in _blocks(choice, plain, elements, dtype):
        done += block.numel()
        if done == elements:
            _expect_end(plain)
        yield block


def decode_into(choice: CodecChoice, data: Buffer, out: Tensor) -> None:
    """Decode into a preallocated tensor; after CorruptPayload its content is unspecified."""
    if choice.name == "identity" and not choice.zstd and out.device.type == "cpu" and out.is_contiguous():
        if len(data) != out.numel() * out.itemsize:
            raise CorruptPayload(f"{len(data)} bytes for {out.numel()} numbers of {out.itemsize} bytes")
        if data:
            memory(out)[:] = memoryview(data).cast("B")
        return
    flat, position = out.view(-1), 0
    dtype = "int64" if out.dtype == torch.int64 else "float32"
    for block in decode_blocks(choice, MemorySource(data), out.numel(), dtype):
        flat[position : position + block.numel()].copy_(block)
        position += block.numel()


def largest(choice: CodecChoice, elements: int, dtype: str = "float32") -> int:
    """Return the most bytes that so many numbers can become."""
    if not elements:
        return 0
    if choice.name == "identity":
        size = elements * ITEM_BYTES[dtype]
    else:
        size = CODECS[choice.name].largest(elements, choice.fraction)
    return bound(size) if choice.zstd else size


def residual(flat: Tensor, decoded: Tensor) -> Tensor:
    """Return what was not sent: the sender adds it to what it sends next (error feedback)."""
    return flat - decoded


def _blocks(choice: CodecChoice, source: ByteSource, elements: int, dtype: str) -> Iterator[Tensor]:
    if dtype == "float32":
        return CODECS[choice.name].blocks(source, elements)
    if choice.name != "identity":
        raise CorruptPayload(f"codec {choice.name} cannot hold {dtype}")
    return exact(source, elements, TORCH[dtype])


def _expect_end(source: ByteSource) -> None:
    if len(source.take(1)):
        raise CorruptPayload("there are bytes after the last number")
