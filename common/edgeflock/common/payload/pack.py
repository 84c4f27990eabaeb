"""Packing: bundles to one payload with its description, and one section's bytes back to numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
import torch
from torch import Tensor

from edgeflock.common.errors import CorruptPayload, LayoutMismatch
from edgeflock.common.payload.checksum import Buffer, Marks
from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.codecs.base import Encoded
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section

log = structlog.get_logger(__name__)


@dataclass
class Packed:
    """A payload ready to be sent: its pieces one after the other, their checksums, what they are."""

    package: Package
    pieces: list[Buffer]  # views of the bundles' own memory where the codec is identity
    marks: Marks
    clamped: int  # numbers that were too large for their codec


def pack(
    bundles: Mapping[Kind, tuple[Tensor, Layout, CodecChoice]],
    scalars: Mapping[str, float],
    generator_for: Callable[[Kind], torch.Generator],
) -> Packed:
    """Encode the bundles in their order; a generator is asked for only by codecs that round stochastically.

    Raises LayoutMismatch if a tensor does not have the size and type of its layout.
    """
    sections: list[Section] = []
    pieces: list[Buffer] = []
    clamped = 0
    for kind, (flat, layout, choice) in bundles.items():
        coded = _code(kind, flat, layout, choice, generator_for)
        size = sum(map(len, coded.pieces))
        sections.append(Section(kind, layout.digest, choice, layout.elements, size))
        pieces += coded.pieces
        clamped += coded.clamped
        if coded.clamped:
            log.info("numbers_clamped", bundle=str(kind), codec=choice.name, numbers=coded.clamped)
    marks = Marks.of(pieces)
    return Packed(Package(tuple(sections), dict(scalars), marks.value), pieces, marks, clamped)


def unpack_section(section: Section, layout: Layout, data: memoryview, out: Tensor) -> None:
    """Decode one section into a preallocated tensor of the layout's size and type.

    Raises LayoutMismatch or CorruptPayload; the tensor's content is then unspecified.
    """
    if section.layout_digest != layout.digest or section.elements != layout.elements:
        raise LayoutMismatch(
            f"the {section.kind} holds {section.elements} numbers of layout {section.layout_digest.hex()}, "
            f"wanted are {layout.elements} of {layout.digest.hex()}"
        )
    _check_tensor(section.kind, out, layout)
    if len(data) != section.size_bytes:
        raise CorruptPayload(
            f"the {section.kind} has {len(data)} bytes, its section says {section.size_bytes}"
        )
    coding.decode_into(section.codec, data, out)


def _code(
    kind: Kind,
    flat: Tensor,
    layout: Layout,
    choice: CodecChoice,
    generator_for: Callable[[Kind], torch.Generator],
) -> Encoded:
    _check_tensor(kind, flat, layout)
    generator = generator_for(kind) if coding.CODECS[choice.name].stochastic else None
    return coding.encode(choice, flat, generator)


def _check_tensor(kind: Kind, flat: Tensor, layout: Layout) -> None:
    if flat.numel() != layout.elements or flat.dtype != coding.TORCH[layout.dtype]:
        raise LayoutMismatch(
            f"the {kind} tensor holds {flat.numel()} numbers of {flat.dtype}, "
            f"its layout says {layout.elements} of {layout.dtype}"
        )
