"""Messages and values: golden bytes, round trips, and every contradiction refused with a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.choice import NAMES, for_kind, parse
from edgeflock.common.payload.layout import NO_BUFFERS, Layout, ModelLayouts
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package, Section
from edgeflock.common.run import DataDescription, ModelDescription, RunDescription
from edgeflock.common.verdict import Verdict
from edgeflock.common.wire import messages
from edgeflock.v1 import aggregator_pb2, bundle_pb2

LAYOUT = Layout.of([("fc.weight", (3, 4)), ("fc.bias", (3,)), ("scale", ())])
RUN = RunDescription(
    "r", 0, 7, "fedavg", {}, ModelDescription("linear", (4,), 3), ModelLayouts(LAYOUT), None, 2
)
PACKAGE = Package(
    sections=(
        Section(Kind.DELTA, LAYOUT.digest, parse("topk:0.25+zstd"), 16, 21),
        Section(Kind.COUNTERS, Layout.single("n", dtype="int64").digest, IDENTITY, 1, 8),
    ),
    scalars={"loss": 0.5, "nothing": math.inf},
    crc32c=0xE3069283,
)

GOLDEN_LAYOUT = (
    "0801120f0a0966632e77656967687412020304120c0a0766632e6269617312010312070a057363616c651a10534b95dd"
    "607b06828079f285bc1e118c"
)
GOLDEN_PACKAGE = (
    "0a2708021210534b95dd607b06828079f285bc1e118c1a0d0805100119000000000000d03f201028150a1c08041210d5"
    "09b0c24800f9940b01225ac60ac2fb1a02080120012808120f0a046c6f737311000000000000e03f12120a076e6f7468"
    "696e6711000000000000f07f181d25839206e32a105e09448ec353f839b93104d6eeaf54d1"
)


def hexadecimal(message: bundle_pb2.Layout | bundle_pb2.Package) -> str:
    return message.SerializeToString(deterministic=True).hex()


def test_the_golden_bytes_of_a_layout() -> None:
    """What today's devices speak: a change here needs another PROTOCOL."""
    assert hexadecimal(messages.layout_to_wire(LAYOUT)) == GOLDEN_LAYOUT
    assert messages.layout_from_wire(bundle_pb2.Layout.FromString(bytes.fromhex(GOLDEN_LAYOUT))) == LAYOUT


def test_the_golden_bytes_of_a_package() -> None:
    """What today's devices speak: a change here needs another PROTOCOL."""
    assert hexadecimal(messages.package_to_wire(PACKAGE)) == GOLDEN_PACKAGE
    assert messages.package_from_wire(bundle_pb2.Package.FromString(bytes.fromhex(GOLDEN_PACKAGE))) == PACKAGE


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_comes_back(kind: Kind) -> None:
    value = messages.kind_to_wire(kind)
    assert bundle_pb2.BundleKind.Name(value) == f"BUNDLE_KIND_{kind.name}"
    assert messages.kind_from_wire(value) is kind


@pytest.mark.parametrize("text", [*(name for name in NAMES if name != "topk"), "topk:0.01", "int8+zstd"])
def test_every_choice_comes_back(text: str) -> None:
    assert messages.choice_from_wire(messages.choice_to_wire(parse(text))) == parse(text)


def test_an_integer_layout_and_an_empty_one_come_back() -> None:
    for layout in (Layout.single("n", 2, dtype="int64"), Layout(()), Layout.single("none", 0, 5)):
        assert messages.layout_from_wire(messages.layout_to_wire(layout)) == layout


@pytest.mark.parametrize("data", [None, DataDescription("digits", "dirichlet:0.5", 3, 9, 0, 0.05, 0.1)])
@pytest.mark.parametrize("buffers", [NO_BUFFERS, Layout.single("mean", 4)])
def test_the_description_of_a_run_comes_back(data: DataDescription | None, buffers: Layout) -> None:
    model = ModelDescription("mlp", (1, 8, 8), 10, {"hidden": "32"})
    layouts = ModelLayouts(LAYOUT, buffers, Layout.single("batches", 1, dtype="int64"))
    run = RunDescription("r", 2, (1 << 64) - 1, "fedprox", {"mu": "0.1"}, model, layouts, data, 4)
    assert messages.run_from_wire(messages.run_to_wire(run)) == run
    assert messages.run_to_wire(run).augment == ""
    augmented = replace(run, augment="flip,crop:4")
    assert messages.run_from_wire(messages.run_to_wire(augmented)) == augmented


def test_a_model_that_leaves_out_what_it_has_not_has_no_buffers_and_no_counters() -> None:
    said = messages.run_to_wire(RUN)
    said.model.ClearField("buffers")
    said.model.ClearField("counters")
    assert messages.run_from_wire(said) == RUN


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_comes_back_over_the_wire(verdict: Verdict) -> None:
    message = messages.verdict_to_wire(3, b"d" * 16, verdict)
    assert (message.round, message.digest, message.counted) == (3, b"d" * 16, verdict is Verdict.COUNTED)
    assert messages.verdict_from_wire(message) is verdict


def test_a_reason_of_a_later_version_says_that_the_update_did_not_count() -> None:
    later = aggregator_pb2.Outcome(round=3, reason=99)  # type: ignore[arg-type]  # not in this version's enum
    assert messages.verdict_from_wire(later) is Verdict.DISCARDED


def test_a_package_without_sections_comes_back() -> None:
    package = Package((), {"steps": 3.0})
    assert messages.package_from_wire(messages.package_to_wire(package)) == package


# ------------------------------------------------------------------------------- malformed: kinds and codecs


@pytest.mark.parametrize("value", [0, 14, 999, -1])
def test_an_unknown_kind_is_refused(value: int) -> None:
    with pytest.raises(MalformedMessage, match=f"bundle kind {value} is unknown"):
        messages.kind_from_wire(value)


@pytest.mark.parametrize("value", [0, 6, 999])
def test_an_unknown_codec_is_refused(value: int) -> None:
    message = bundle_pb2.CodecSpec()
    message.MergeFromString(b"\x08" + value.to_bytes(1, "little") if value < 128 else b"\x08\xe7\x07")
    with pytest.raises(MalformedMessage, match=f"codec {value} is unknown"):
        messages.choice_from_wire(message)


@pytest.mark.parametrize(
    ("codec", "fraction"),
    [
        (bundle_pb2.CODEC_TOPK, 0.0),
        (bundle_pb2.CODEC_TOPK, 1.01),
        (bundle_pb2.CODEC_TOPK, -0.5),
        (bundle_pb2.CODEC_TOPK, math.nan),
        (bundle_pb2.CODEC_FP16, 0.5),
        (bundle_pb2.CODEC_FP16, math.nan),
    ],
)
def test_a_fraction_out_of_place_is_refused(codec: bundle_pb2.Codec.ValueType, fraction: float) -> None:
    with pytest.raises(MalformedMessage, match="fraction"):
        messages.choice_from_wire(bundle_pb2.CodecSpec(codec=codec, fraction=fraction))


# ------------------------------------------------------------------------------- malformed: layouts


def layout_of(*tensors: tuple[str, tuple[int, ...]]) -> bundle_pb2.Layout:
    return messages.layout_to_wire(Layout.of(tensors))


def changed_layout(change: Callable[[bundle_pb2.Layout], None]) -> bundle_pb2.Layout:
    message = messages.layout_to_wire(LAYOUT)
    change(message)
    return message


MALFORMED_LAYOUTS = {
    "digest of the layout is": changed_layout(lambda m: setattr(m.tensors[0], "name", "other")),
    "digest of the layout is 00,": changed_layout(lambda m: setattr(m, "digest", b"\0")),
    "dtype 0 is unknown": changed_layout(lambda m: m.ClearField("dtype")),
    "layout has 100001 tensors, allowed are 100000": layout_of(*((f"t{n}", ()) for n in range(100_001))),
    "tensor 'x' has 9 dimensions, allowed are 8": layout_of(("x", (1,) * 9)),
    "tensor 'x' has 1099511627777 numbers": layout_of(("x", ((1 << 40) + 1,))),
    "numbers, allowed are 1099511627776": layout_of(("x", (1 << 63, 1 << 63, 0))),
    "layout has 2199023255552 numbers": layout_of(("x", (1 << 40,)), ("y", (1 << 40,))),
    "tensor 'x' is there twice": layout_of(("x", (1,)), ("x", (1,))),
    "tensor name '' is not 1 to 256": layout_of(("", (1,))),
    "tensor name 'xx": layout_of(("x" * 257, (1,))),
    "tensor name 'a\\nb' is not": layout_of(("a\nb", (1,))),
}


@pytest.mark.parametrize("words", MALFORMED_LAYOUTS)
def test_a_malformed_layout_is_refused(words: str) -> None:
    with pytest.raises(MalformedMessage, match=re.escape(words)) as refused:
        messages.layout_from_wire(MALFORMED_LAYOUTS[words])
    assert len(str(refused.value)) < 500


# ------------------------------------------------------------------------------- malformed: packages


def package_of(*sections: Section, **scalars: float) -> bundle_pb2.Package:
    return messages.package_to_wire(Package(sections, scalars))


def section(kind: Kind = Kind.DELTA, codec: str = "identity", elements: int = 16, size: int = 64) -> Section:
    return Section(kind, LAYOUT.digest, parse(codec), elements, size)


def changed_package(change: Callable[[bundle_pb2.Package], None]) -> bundle_pb2.Package:
    message = messages.package_to_wire(PACKAGE)
    change(message)
    return message


def with_unknown_kind(message: bundle_pb2.Package) -> None:
    message.sections[0].MergeFromString(b"\x08\x63")


MALFORMED_PACKAGES = {
    "package has 17 sections, allowed are 16": package_of(*[section()] * 17),
    "package has 65 scalars, allowed are 64": package_of(**{f"s{n}": 0.0 for n in range(65)}),
    "scalar name '' is not 1 to 64": package_of(**{"": 0.0}),
    "scalar name 'ss": package_of(**{"s" * 65: 0.0}),
    "scalar name 'a\\x00b'": package_of(**{"a\0b": 0.0}),
    "section 'delta' is there twice": package_of(section(), section()),
    "bundle kind 99 is unknown": changed_package(with_unknown_kind),
    "codec 0 is unknown": changed_package(lambda m: m.sections[0].ClearField("codec")),
    "codec topk:0.1 is not for bundles of kind model": package_of(section(Kind.MODEL, "topk:0.1", size=4)),
    "codec identity+zstd is not for bundles of kind counts": package_of(
        section(Kind.COUNTS, "identity+zstd")
    ),
    "layout digest of delta has 3 bytes, not 16": changed_package(
        lambda m: setattr(m.sections[0], "layout_digest", b"abc")
    ),
    "section delta has 1099511627777 numbers": package_of(section(elements=(1 << 40) + 1)),
    "section delta has 65 bytes, allowed are 64": package_of(section(size=65)),
    "section delta has 1 bytes, allowed are 0": package_of(section(elements=0, size=1)),
    "section delta has 9 bytes, allowed are 8": package_of(section(codec="bf16", elements=4, size=9)),
    "section delta has 17 bytes, allowed are 16": package_of(section(codec="topk:0.1", size=17)),
    "package of 30 bytes has 29 in its sections": changed_package(lambda m: setattr(m, "size_bytes", 30)),
    "digest of the package is": changed_package(lambda m: setattr(m, "crc32c", 1)),
    "digest of the package is 6162,": changed_package(lambda m: setattr(m, "digest", b"ab")),
    "digest of the package is 7878": changed_package(lambda m: setattr(m, "digest", b"x" * 100_000)),
}


@pytest.mark.parametrize("words", MALFORMED_PACKAGES)
def test_a_malformed_package_is_refused(words: str) -> None:
    with pytest.raises(MalformedMessage, match=re.escape(words)) as refused:
        messages.package_from_wire(MALFORMED_PACKAGES[words])
    assert len(str(refused.value)) < 500


def test_an_empty_message_is_refused() -> None:
    for refuse in (
        lambda: messages.layout_from_wire(bundle_pb2.Layout()),
        lambda: messages.package_from_wire(bundle_pb2.Package()),
        lambda: messages.choice_from_wire(bundle_pb2.CodecSpec()),
    ):
        with pytest.raises(MalformedMessage):
            refuse()


@pytest.mark.parametrize("kind", list(Kind))
def test_what_for_kind_gives_is_accepted_and_nothing_else(kind: Kind) -> None:
    for text in ("identity", "fp16", "bf16+zstd", "int8", "topk:1"):
        message = package_of(section(kind, text, elements=16, size=16))
        if for_kind(parse(text), kind) == parse(text):
            assert messages.package_from_wire(message).sections[0].codec == parse(text)
        else:
            with pytest.raises(MalformedMessage, match="is not for bundles"):
                messages.package_from_wire(message)


def test_counters_may_have_eight_bytes_a_number() -> None:
    assert (
        messages.package_from_wire(package_of(section(Kind.COUNTERS, elements=2, size=16))).size_bytes == 16
    )


def test_a_choice_keeps_its_fraction_to_the_last_digit() -> None:
    choice = CodecChoice("topk", fraction=1 / 3)
    assert messages.choice_from_wire(messages.choice_to_wire(choice)) == choice == parse(str(choice))
