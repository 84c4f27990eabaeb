"""What is told of many: some are named and the others counted, quantiles, and who stands out."""

from __future__ import annotations

import pytest

from edgeflock.common.command.crowd import (
    EVERYBODY,
    KINDS,
    Quantiles,
    by_number,
    each_with,
    everybody,
    is_crowd,
    quantiles,
    some,
    standing_out,
)

FEW, MANY = ([f"c{number}" for number in range(count)] for count in (EVERYBODY, EVERYBODY + 1))


def test_few_are_all_named_and_of_many_some() -> None:
    assert (is_crowd(FEW), is_crowd(MANY)) == (False, True)
    assert everybody(FEW).split(", ") == FEW
    assert everybody(MANY) == "c0, c1, c2, c3 and 47 more"
    assert some(["a", "b", "c"], 2) == "a, b and 1 more"
    assert some(["a", "b"], 2) == "a, b"


def test_what_is_said_of_each_of_many_is_counted() -> None:
    assert each_with({"a": "late", "b": "malformed"}) == "a (late), b (malformed)"
    assert each_with(dict.fromkeys(MANY, "late") | {"c0": "malformed"}) == "50 late, 1 malformed"


def test_what_is_rare_among_many_kinds_is_told_together() -> None:
    assert by_number(["b", "a", "b"]) == [("b", 2), ("a", 1)]
    found = by_number([*(["usual"] * 9), *(f"kind {number:02}" for number in range(KINDS + 5))])
    assert (found[0], len(found), found[-1]) == (("usual", 9), KINDS + 1, ("6 others", 6))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], None),
        ([None, None], None),
        ([3.0, None], Quantiles(1, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)),
        (range(101), Quantiles(101, 0, 10, 50, 90, 100, 50.0)),
    ],
)
def test_a_spread_leaves_out_what_is_not_known(values: list[float | None], found: Quantiles | None) -> None:
    assert quantiles(values) == found


def test_who_stands_out_is_told_once_with_all_that_it_is_first_in() -> None:
    speed, weight = {"a": 3.0, "b": 9.0, "c": 1.0}, {"b": 2.0, "c": 2.0, "a": 0.0}
    assert standing_out("abc", {"speed": speed.get, "weight": weight.get}, each=2) == [
        ("b", ["speed", "weight"]),
        ("a", ["speed"]),
        ("c", ["weight"]),
    ]


def test_nobody_stands_out_by_nothing() -> None:
    assert standing_out("ab", {"speed": {"a": 0.0}.get}) == []
