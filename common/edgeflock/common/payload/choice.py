"""Codec choices as the operator writes them, and which codecs a kind of bundle may have (no torch here)."""

from __future__ import annotations

from edgeflock.common.errors import BadValue, UnknownName
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind

NAMES = ("identity", "fp16", "bf16", "int8", "topk")
ALLOWED = "identity, fp16, bf16, int8 or topk:FRACTION with a fraction in (0, 1], each optionally with +zstd"

ABSOLUTE = ("identity", "fp16", "bf16")  # parameters as they are
CENTRED = (*ABSOLUTE, "int8")  # states that are small and centred at zero
SUITABLE: dict[Kind, tuple[str, ...]] = {
    Kind.MODEL: ABSOLUTE,
    Kind.ANCHOR: ABSOLUTE,
    Kind.DELTA: NAMES,
    Kind.MOMENTUM: CENTRED,
    Kind.CONTROL: CENTRED,
    Kind.GRADIENT: CENTRED,
}  # every other kind is exact: identity alone, without zstd


def parse(text: str) -> CodecChoice:
    """Read a choice such as `identity`, `fp16`, `int8+zstd`, `topk:0.01+zstd`.

    Raises UnknownName or BadValue with a sentence that names what is allowed.
    """
    body, plus, wrapper = text.partition("+")
    name, colon, share = body.partition(":")
    if name not in NAMES:
        raise UnknownName("codec", name, NAMES)
    if (plus and wrapper != "zstd") or bool(colon) != (name == "topk"):
        raise BadValue("codec", text, ALLOWED)
    return CodecChoice(name, zstd=bool(plus), fraction=_fraction(text, share) if colon else 0.0)


def for_kind(choice: CodecChoice, kind: Kind) -> CodecChoice:
    """Return the choice if bundles of that kind may be coded so, else identity."""
    return choice if choice.name in SUITABLE.get(kind, ()) else IDENTITY


def _fraction(text: str, share: str) -> float:
    try:
        fraction = float(share)
    except ValueError:
        raise BadValue("codec", text, ALLOWED) from None
    if not 0 < fraction <= 1:
        raise BadValue("codec", text, ALLOWED)
    return fraction
