"""The back-off: bounded, jittered, and obedient to what the server asks for."""

from __future__ import annotations

from random import Random

import pytest

from edgeflock.client.deciding.backoff import Backoff


def test_delays_stay_below_a_ceiling_that_doubles_up_to_a_bound() -> None:
    backoff = Backoff(Random(1), first_s=0.5, most_s=4.0)
    delays = [backoff.next_s() for _ in range(200)]
    ceilings = [0.5, 1.0, 2.0, *[4.0] * 197]
    assert all(0 <= delay <= ceiling for delay, ceiling in zip(delays, ceilings, strict=True))
    assert max(delays[3:]) > 3.9


def test_every_failure_doubles_the_ceiling_until_it_is_the_longest() -> None:
    ceilings = [_longest(failures) for failures in range(6)]
    assert ceilings == pytest.approx([0.5, 1.0, 2.0, 4.0, 4.0, 4.0], rel=0.02)


def _longest(failures: int) -> float:
    """Return the longest delay that clients have after so many failures."""
    backoffs = [Backoff(Random(seed), first_s=0.5, most_s=4.0) for seed in range(400)]
    return max([backoff.next_s() for _ in range(failures + 1)][-1] for backoff in backoffs)


def test_jitter_is_full() -> None:
    """Delays fill the whole range below the ceiling: clients that fail together come back apart."""
    backoff = Backoff(Random(2), first_s=1.0, most_s=1.0)
    delays = [backoff.next_s() for _ in range(1000)]
    assert min(delays) < 0.05
    assert max(delays) > 0.95


def test_the_same_generator_gives_the_same_delays() -> None:
    one, other = Backoff(Random("a")), Backoff(Random("a"))
    assert [one.next_s() for _ in range(9)] == [other.next_s() for _ in range(9)]


def test_after_a_success_the_delays_are_short_again() -> None:
    backoff = Backoff(Random(3), first_s=0.1, most_s=60.0)
    assert max(backoff.next_s() for _ in range(20)) > 1
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_the_server_is_never_asked_again_before_the_time_it_named() -> None:
    backoff = Backoff(Random(4), first_s=0.1, most_s=0.1)
    delays = [backoff.next_s(retry_after_ms=1500) for _ in range(100)]
    assert all(1.5 <= delay <= 1.6 for delay in delays)


def test_the_return_to_a_server_that_went_down_is_spread_over_its_window() -> None:
    delays = [Backoff(Random(seed)).next_s(return_within_ms=30_000) for seed in range(300)]
    assert all(0 <= delay <= 30 for delay in delays)
    assert min(delays) < 3
    assert max(delays) > 27


def test_a_failed_return_goes_on_with_the_usual_delays() -> None:
    backoff = Backoff(Random(5), first_s=0.1, most_s=1.0)
    backoff.next_s(return_within_ms=30_000)
    assert backoff.next_s(return_within_ms=30_000) <= 0.2


def test_ten_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(Random(6), attempts=10_000)
    delays = [backoff.next_s() for _ in range(100)]
    assert 0.9 * backoff.most_s < max(delays) <= backoff.most_s
