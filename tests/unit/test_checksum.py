"""Running checksums: however a payload is cut, every mark is the plain checksum of what lies before it."""

from __future__ import annotations

import random

import crc32c
import pytest

from edgeflock.common.payload.checksum import GRANULE, Marks, extend


@pytest.mark.parametrize("size", [0, 1, GRANULE - 1, GRANULE, GRANULE + 1, 3 * GRANULE, 5 * GRANULE + 77])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_marks_do_not_depend_on_the_cuts(size: int, seed: int) -> None:
    draw = random.Random(seed * 1000 + size)
    data = draw.randbytes(size)
    cuts = sorted(draw.randint(0, size) for _ in range(draw.randint(0, 40)))
    marks = Marks.of(
        memoryview(data)[start:end] for start, end in zip([0, *cuts], [*cuts, size], strict=True)
    )
    assert (marks.size, marks.value) == (size, crc32c.crc32c(data))
    for offset in [*range(0, size, GRANULE), size]:
        assert marks.at(offset) == crc32c.crc32c(data[:offset]), offset


@pytest.mark.parametrize("keep", [0, GRANULE, 2 * GRANULE, 2 * GRANULE + 77])
def test_marks_go_on_after_a_cut(keep: int) -> None:
    """An upload that goes on from an earlier offset has the marks of one that never stopped."""
    data = random.Random(keep).randbytes(2 * GRANULE + 77)
    marks = Marks.of([data])
    marks.cut(keep)
    assert (marks.size, marks.value) == (keep, crc32c.crc32c(data[:keep]))
    marks.add(data[keep:])
    for offset in (0, GRANULE, 2 * GRANULE, len(data)):
        assert marks.at(offset) == crc32c.crc32c(data[:offset])


def test_the_checksum_is_crc_32c() -> None:
    """The check value of the algorithm's definition."""
    assert extend(0, b"123456789") == 0xE3069283
    assert extend(extend(0, b"1234"), b"56789") == 0xE3069283
