"""An update's description: what identifies it and what goes with it, in the one form that both ends store.

One line of JSON and one with its checksum; what stands behind these means nothing.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.choice import NAMES
from edgeflock.common.payload.layout import DIGEST_BYTES
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section
from edgeflock.common.scores import ClientScore

MAX_BYTES = 1 << 18  # of a stored one: several times what the wire's limits allow
_MOST = 1 << 63  # of any whole number in it
_DAMAGES = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
)  # of JSON that is not ours, whatever its checksum says


class CorruptDescription(EdgeflockError):
    """Stored bytes that are no description of ours."""


@dataclass(frozen=True)
class Description:
    """One update: of which round, its package, and what is told with it."""

    round: int
    package: Package
    samples: int  # that the client has
    scores: tuple[ClientScore, ...] = ()  # of the client's own model; not part of the package's digest
    made_from: bytes = b""  # digest of the round's shared package; empty: of before that was said
    moved: bool | None = None  # whether the client's own state moves with it; None: likewise

    def to_bytes(self, beside: Mapping[str, Any] | None = None) -> bytes:
        """Return the stored form, with what its keeper has `beside` it; the same for the same update."""
        fields = {
            "round": self.round,
            "samples": self.samples,
            "digest": self.package.digest.hex(),
            "crc32c": self.package.crc32c,
            "scalars": {name: _number(float(value)) for name, value in sorted(self.package.scalars.items())},
            "sections": [_section_fields(section) for section in self.package.sections],
            "scores": [score.stored() for score in self.scores],
            "made_from": self.made_from.hex(),
            "moved": self.moved,
        }
        text = json.dumps({**(beside or {}), **fields}).encode()
        return b"%s\n%08x\n" % (text, extend(0, text))

    @classmethod
    def from_bytes(cls, stored: bytes) -> tuple[Description, dict[str, Any]]:
        """Return a description that was stored, and what was beside it; raises CorruptDescription."""
        try:
            fields = _checked(stored)
            return cls._of(fields), fields
        except _DAMAGES as error:
            raise CorruptDescription(f"the description cannot be read: {error}") from None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Description:
        """Take the fields of a description out of these."""
        sections = tuple(map(_section, fields.pop("sections")))
        scalars = {name: _value(text) for name, text in fields.pop("scalars").items()}
        package = Package(sections, scalars, _count(fields.pop("crc32c"), most=1 << 32))
        if package.digest.hex() != fields.pop("digest"):
            raise ValueError("the package has another digest")
        scores = tuple(map(_score, fields.pop("scores")))
        round, samples = _count(fields.pop("round")), _count(fields.pop("samples"))
        made_from, moved = bytes.fromhex(fields.pop("made_from", "")), fields.pop("moved", None)
        if len(made_from) not in (0, DIGEST_BYTES) or not isinstance(moved, bool | None):
            raise ValueError("it does not say of what it was made, or whether a state moves")
        return cls(round, package, samples, scores, made_from, moved)


def _checked(stored: bytes) -> dict[str, Any]:
    text, checksum, _ = stored[:MAX_BYTES].split(b"\n", 2)
    if checksum != b"%08x" % extend(0, text):
        raise ValueError("it has another checksum")
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("it has no fields")
    return fields


def _section_fields(section: Section) -> dict[str, Any]:
    return {
        "kind": str(section.kind),
        "layout": section.layout_digest.hex(),
        "codec": vars(section.codec),
        "elements": section.elements,
        "size_bytes": section.size_bytes,
    }


def _section(fields: dict[str, Any]) -> Section:
    layout, codec = bytes.fromhex(fields["layout"]), CodecChoice(**fields["codec"])
    if len(layout) != DIGEST_BYTES or codec.name not in NAMES:
        raise ValueError("a section is none of ours")
    elements, size = _count(fields["elements"]), _count(fields["size_bytes"], most=1 << 58)
    return Section(Kind(fields["kind"]), layout, codec, elements, size)


def _score(fields: dict[str, Any]) -> ClientScore:
    sums = {str(name): tuple(map(_finite, values)) for name, values in fields.pop("sums", {}).items()}
    score = ClientScore(**fields, sums=sums)
    if not (0 <= _count(score.hits) <= _count(score.samples) and score.samples and math.isfinite(score.loss)):
        raise ValueError("a score cannot be one")
    return score


def _finite(value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("a sum of a score is no number")
    return float(value)


def _count(value: object, most: int = _MOST) -> int:
    if not isinstance(value, int) or not 0 <= value < most:
        raise ValueError(f"{str(value)[:40]!r} is no whole number that can stand here")
    return value


def _number(value: float) -> str:
    """Return a number to its last bit; NaN has many forms, and the digest tells them apart."""
    return value.hex() if value == value else f"nan{struct.pack('>d', value).hex()}"


def _value(text: str) -> float:
    if not text.startswith("nan"):
        return float.fromhex(text)
    bits = bytes.fromhex(text[3:])
    if not bits:  # as it was stored before its bits were
        return math.nan
    if len(bits) != 8 or not math.isnan(value := struct.unpack(">d", bits)[0]):
        raise ValueError("a number cannot be one")
    return float(value)
