"""The simulated clock: what is drawn for a round, and what is read of it."""

from __future__ import annotations

import numpy as np
import pytest

from edgeflock.common.errors import BadValue
from edgeflock.server.costs.clock import Clock, parse

USUAL = "simulated:c=0.013,b=0.1316"


def clock(text: str = "simulated", *, central: bool = False) -> Clock:
    found = parse(text, central=central)
    assert found is not None
    return found


def test_a_round_is_a_function_of_seed_round_and_steps_and_its_rest_of_the_first_two() -> None:
    found = clock()
    assert found.drawn(7, 12, 5) == found.drawn(7, 12, 5)
    assert len({found.drawn(seed, round, 5) for seed in (7, 8) for round in (1, 2)}) == 4
    (five, rest), (six, same) = found.drawn(7, 12, 5), found.drawn(7, 12, 6)
    assert six > five
    assert rest == same
    assert found.drawn(7, 12, 0) == (0.0, rest)


def test_one_clock_has_one_text_in_whatever_unit_it_was_given() -> None:
    assert str(clock("simulated:c=13ms,b=131.6ms")) == USUAL == str(clock(USUAL))


@pytest.mark.parametrize(
    ("text", "central", "c", "b"),
    [
        ("simulated", False, (0.0130, 0.0069), (0.1316, 0.0539)),
        ("simulated:c=26ms", False, (0.0260, 0.0138), (0.1316, 0.0539)),
        ("simulated", True, (0.00997, 0.0119), (0.0, 0.0)),
        ("simulated:b=0", False, (0.0130, 0.0069), (0.0, 0.0)),
    ],
    ids=["usual", "slower", "central", "without a rest"],
)
def test_the_draws_have_the_means_and_deviations_that_are_known(
    text: str, central: bool, c: tuple[float, float], b: tuple[float, float]
) -> None:
    """As medians: below nothing there is nothing, which lifts the mean."""
    draws = np.array([clock(text, central=central).drawn(3, number, 1) for number in range(4000)])
    assert draws[:, 0].min() >= 1e-10
    for (mean, deviation), found in zip((c, b), draws.T, strict=True):
        assert np.median(found) == pytest.approx(mean, abs=0.06 * deviation)
        upper = np.sqrt(np.mean(np.square(found[found > mean] - mean))) if mean else 0.0
        assert upper == pytest.approx(deviation, rel=0.05)


def test_many_steps_last_the_sum_of_as_many_draws() -> None:
    """Hence their mean hardly varies, where one draw would do so by half."""
    means = [clock().drawn(3, number, 100)[0] / 100 for number in range(400)]
    assert np.std(means) == pytest.approx(0.0069 / 10, rel=0.15)
    once = [clock(f"{USUAL},draws=round").drawn(3, number, 100)[0] / 100 for number in range(400)]
    assert np.std(once) == pytest.approx(0.0069, rel=0.15)


def test_what_is_read_is_written_in_full_and_read_again() -> None:
    assert parse("real") is None
    for text, full in (
        ("simulated", USUAL),
        ("simulated:b=130ms,c=1", "simulated:c=1.0,b=0.13"),
        (f"{USUAL},draws=round", f"{USUAL},draws=round"),
    ):
        assert str(clock(text)) == full
        assert clock(full) == clock(text)
    assert str(clock(central=True)) == "simulated:c=0.00997,b=0.0"
    assert clock("simulated:c=0.00997,b=0.0", central=True) == clock(central=True)


BAD = (
    "fast", "", "real:c=1", "simulated:", "simulated:c", "simulated:c=0", "simulated:c=-1", "simulated:c=x",
    "simulated:b=inf", "simulated:d=1", "simulated:c=1,c=2", "simulated:draws=step", "simulated,c=1",
)  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(
        BadValue, match=r"--clock is .*, allowed is real, simulated, or simulated:c=13ms,b=0\.13"
    ):
        parse(text)
