"""What is a client id, asked of the one rule that both ends, the options and the certificates go by."""

from __future__ import annotations

import pytest

from edgeflock.common.client_id import WORDS, checked_id, is_client_id
from edgeflock.common.errors import BadValue

GOOD = ["c1", "a.b_c-D", "x" * 64, "...a", "-", "_", "0"]
BAD = ["", ".", "..", "." * 64, "a/b", "../x", "a\0b", "x" * 65, "ü", "a b", "a\n", "\u0664"]


@pytest.mark.parametrize("name", GOOD)
def test_names_that_are_ids(name: str) -> None:
    assert is_client_id(name)
    assert checked_id(name) == name


@pytest.mark.parametrize("name", BAD)
def test_names_that_are_none_are_refused_with_the_rule(name: str) -> None:
    assert not is_client_id(name)
    with pytest.raises(BadValue) as refused:
        checked_id(name, "--id")
    assert str(refused.value) == f"--id is {name!r}, allowed is {WORDS}"
