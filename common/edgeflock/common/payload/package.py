"""Packages: encoded bundles one after the other, with all that is needed to check and decode them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property


class Kind(StrEnum):
    """What a bundle holds; the names of the wire's BundleKind."""

    MODEL = "model"
    DELTA = "delta"
    BUFFERS = "buffers"
    COUNTERS = "counters"
    MOMENTUM = "momentum"
    CONTROL = "control"
    GRADIENT = "gradient"
    CENTROIDS = "centroids"
    COUNTS = "counts"
    ANCHOR = "anchor"
    BASE = "base"
    SUM = "sum"
    NOTES = "notes"


class Scope(StrEnum):
    """For whom a package is; the names of the wire's Scope."""

    SHARED = "shared"  # the same for everybody
    PERSONAL = "personal"  # for one client alone
    OPTIONAL = "optional"  # the same for everybody, only for those who lack it
    RESULT = "result"  # a model of the run, to be kept
    BASE = "base"  # the same in every round, only for those whose frozen part is another


@dataclass(frozen=True)
class CodecChoice:
    """A codec by name with its settings, as the operator writes it: `int8+zstd`, `topk:0.01`."""

    name: str = "identity"
    zstd: bool = False
    fraction: float = 0.0

    def __str__(self) -> str:
        share = f":{self.fraction!r}" if self.fraction else ""
        return f"{self.name}{share}{'+zstd' if self.zstd else ''}"


IDENTITY = CodecChoice()


@dataclass(frozen=True)
class Section:
    """One encoded bundle of a package."""

    kind: Kind
    layout_digest: bytes
    codec: CodecChoice
    elements: int
    size_bytes: int


@dataclass(frozen=True)
class Package:
    """The description of a payload: its sections, scalars and checksum."""

    sections: tuple[Section, ...]
    scalars: Mapping[str, float] = field(default_factory=dict)
    crc32c: int = 0

    @cached_property
    def size_bytes(self) -> int:
        return sum(section.size_bytes for section in self.sections)

    @cached_property
    def digest(self) -> bytes:
        """Identity of the package: whatever differs in content differs here."""
        hashed = hashlib.sha256(struct.pack("<QI", self.size_bytes, self.crc32c))
        for section in self.sections:
            text = f"{section.kind}|{section.codec}|{section.elements}|{section.size_bytes}|"
            hashed.update(text.encode() + section.layout_digest)
        for name in sorted(self.scalars):
            hashed.update(name.encode() + struct.pack("<d", self.scalars[name]))
        return hashed.digest()[:16]

    def offset(self, kind: Kind) -> int:
        """Return where the first section of that kind begins in the payload."""
        position = 0
        for section in self.sections:
            if section.kind == kind:
                return position
            position += section.size_bytes
        raise KeyError(kind)

    def section(self, kind: Kind) -> Section:
        return next(section for section in self.sections if section.kind == kind)

    def kinds(self) -> frozenset[Kind]:
        return frozenset(section.kind for section in self.sections)
