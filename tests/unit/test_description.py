"""The one stored form of an update's description: to the last bit there and back, and damage is told."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.choice import NAMES
from edgeflock.common.payload.description import MAX_BYTES, CorruptDescription, Description
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section
from edgeflock.common.scores import ClientScore
from edgeflock.common.wire import messages

SECTION = Section(Kind.DELTA, b"L" * 16, CodecChoice("topk", zstd=True, fraction=0.01), 99, 5)
MADE = Description(
    3, Package((SECTION,), {"loss": 1 / 3, "steps": 7.0}, 77), 42, (ClientScore("client_local", 30, 7, 0.5),)
)

counts = st.integers(0, 1 << 48)
sections = st.builds(
    Section,
    st.sampled_from(Kind),
    st.binary(min_size=16, max_size=16),
    st.builds(CodecChoice, st.sampled_from(NAMES), st.booleans(), st.floats(0, 1)),
    counts,
    counts,
)
numbers = st.one_of(st.floats(), st.binary(min_size=8, max_size=8).map(lambda b: struct.unpack("<d", b)[0]))
packages = st.builds(
    Package,
    st.lists(sections, max_size=4).map(tuple),
    st.dictionaries(st.text(min_size=1, max_size=8), numbers, max_size=6),
    st.integers(0, (1 << 32) - 1),
)
scores = st.builds(
    lambda model, samples, missed, loss: ClientScore(model, samples, max(0, samples - missed), loss),
    st.sampled_from(["client_local", "client_pooled"]),
    st.integers(1, 1 << 40),
    counts,
    st.floats(allow_nan=False, allow_infinity=False),
)
descriptions = st.builds(
    Description, st.integers(0, 1 << 40), packages, counts, st.lists(scores, max_size=2).map(tuple)
)


def sealed(fields: object) -> bytes:
    """Return bytes whose checksum holds, whatever stands in them."""
    text = json.dumps(fields).encode()
    return b"%s\n%08x\n" % (text, extend(0, text))


@given(descriptions)
@example(Description(1, Package((), {"negative": struct.unpack(">d", b"\xff\xf8" + bytes(6))[0]}), 0))
def test_every_description_comes_back(made: Description) -> None:
    """Its scalars to the last bit, also of a NaN: the package's digest, which is checked, covers them."""
    found, beside = Description.from_bytes(made.to_bytes())
    assert beside == {}
    assert found.package.digest == made.package.digest
    assert replace(found, package=made.package) == made
    assert found.package.sections == made.package.sections


def test_what_is_beside_it_comes_back_beside_it() -> None:
    stored = MADE.to_bytes({"run_id": "run1", "round": 99})
    assert Description.from_bytes(stored) == (MADE, {"run_id": "run1"})


def test_the_same_update_is_stored_in_the_same_bytes_whatever_the_order_of_its_scalars() -> None:
    other = Package((SECTION,), {"steps": 7.0, "loss": 1 / 3}, 77)
    assert replace(MADE, package=other).to_bytes() == MADE.to_bytes()


def test_what_a_longer_one_has_left_behind_its_end_means_nothing() -> None:
    assert Description.from_bytes(MADE.to_bytes() + b"of a longer one}\n123\n")[0] == MADE


def test_the_longest_that_the_wire_allows_fits() -> None:
    names = [chr(0x1F600) * (messages.MAX_SCALAR_NAME - 2) + f"{n:02}" for n in range(messages.MAX_SCALARS)]
    package = Package((SECTION,) * messages.MAX_SECTIONS, dict.fromkeys(names, -math.pi), 1)
    stored = replace(MADE, package=package).to_bytes({"cost": "c" * 1000})
    assert len(stored) < MAX_BYTES / 2
    assert Description.from_bytes(stored)[0].package == package


@given(st.binary(max_size=200))
def test_bytes_that_are_no_description_are_refused_with_one_error(stored: bytes) -> None:
    with pytest.raises(CorruptDescription):
        Description.from_bytes(stored)


def test_every_cut_and_flip_is_found() -> None:
    good = MADE.to_bytes()
    for place in range(len(good)):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]):
            with pytest.raises(CorruptDescription):
                Description.from_bytes(bad)


FIELDS: dict[str, Any] = json.loads(MADE.to_bytes().partition(b"\n")[0])
ODD: tuple[Any, ...] = (None, True, -1, 1 << 64, 10**400, 1.5, math.inf, "x", "nan00", [[]], {"model": 1})
NEWER = ("made_from", "moved")  # a version before did not store them
FINE: dict[str, list[Any]] = {"round": [True], "samples": [True], "moved": [True, None]}  # of the odd ones
BAD = [(name, odd) for name in FIELDS for odd in ODD if not any(odd is one for one in FINE.get(name, []))]


@pytest.mark.parametrize(("name", "odd"), BAD, ids=repr)
def test_a_field_that_cannot_be_is_refused_though_the_checksum_holds(name: str, odd: object) -> None:
    with pytest.raises(CorruptDescription):
        Description.from_bytes(sealed({**FIELDS, name: odd}))


def test_a_description_of_the_version_before_is_read() -> None:
    stored = sealed({name: FIELDS[name] for name in FIELDS if name not in NEWER})
    assert Description.from_bytes(stored) == (replace(MADE, made_from=b"", moved=None), {})


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in NEWER])
def test_a_description_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(CorruptDescription):
        Description.from_bytes(sealed({other: FIELDS[other] for other in FIELDS if other != name}))


@pytest.mark.parametrize("odd", ["x", "nan00", "nan3ff0000000000000", "0x1p99999", 1, None, []], ids=repr)
def test_a_scalar_that_is_no_number_is_refused(odd: object) -> None:
    with pytest.raises(CorruptDescription):
        Description.from_bytes(sealed({**FIELDS, "scalars": {"loss": odd}}))


anything = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@given(st.recursive(anything, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_other_json_is_refused_with_the_same_error(fields: object) -> None:
    with pytest.raises(CorruptDescription):
        Description.from_bytes(sealed(fields))


def test_json_that_is_nested_without_an_end_is_refused() -> None:
    text = b"[" * 100_000
    with pytest.raises(CorruptDescription):
        Description.from_bytes(b"%s\n%08x\n" % (text, extend(0, text)))
