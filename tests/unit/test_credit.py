"""Credit on uploads: bounded in all, and nobody ever stands still."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.server.service.credit import LARGE, SMALL, CreditPool, Stream

SIZES = st.integers(1, 40 * SMALL)


def test_a_lone_stream_gets_a_whole_window() -> None:
    pool = CreditPool(32 * LARGE)
    stream = pool.admit(0, 100 * LARGE)
    assert (stream.held, stream.limit) == (0, 4 * LARGE)


def test_credit_ends_with_the_payload() -> None:
    pool = CreditPool(32 * LARGE)
    stream = pool.admit(300, 1000)
    assert (stream.limit, pool.outstanding) == (1000, 700)


def test_a_complete_upload_holds_no_credit() -> None:
    pool = CreditPool(32 * LARGE)
    assert pool.admit(1000, 1000).limit == 1000
    assert pool.outstanding == 0


def test_when_the_budget_is_used_up_a_new_stream_still_gets_one_small_chunk() -> None:
    pool = CreditPool(4 * LARGE)
    pool.admit(0, 100 * LARGE)
    assert pool.admit(0, 100 * LARGE).limit == SMALL


def test_credit_comes_back_when_half_of_the_window_is_used() -> None:
    pool = CreditPool(32 * LARGE)
    stream = pool.admit(0, 100 * LARGE)
    assert not pool.spooled(stream, LARGE)
    assert pool.spooled(stream, LARGE)
    assert stream.limit == 6 * LARGE


def test_a_stream_that_ends_gives_back_what_it_did_not_use() -> None:
    pool = CreditPool(4 * LARGE)
    first, second = pool.admit(0, 100 * LARGE), pool.admit(0, 100 * LARGE)
    pool.spooled(first, SMALL)
    pool.close(first)
    assert pool.outstanding == second.outstanding == SMALL
    pool.close(first)
    assert pool.outstanding == SMALL
    assert pool.spooled(second, SMALL)
    assert second.outstanding == 4 * LARGE


@given(
    budget=st.integers(0, 20 * SMALL),
    window=st.integers(SMALL, 16 * SMALL),
    steps=st.lists(st.tuples(st.sampled_from("aswc"), st.integers(0, 5), SIZES), max_size=60),
)
@settings(deadline=None)
def test_credit_is_bounded_and_every_stream_moves(
    budget: int, window: int, steps: list[tuple[str, int, int]]
) -> None:
    """Outstanding <= budget + one small chunk per stream, and nobody waits for another."""
    pool = CreditPool(budget, window_bytes=window)
    streams: list[Stream] = []
    for step, which, count in steps:
        if step == "a" and len(streams) < 6:
            streams.append(pool.admit(count // 3, count))
        elif streams and step in "sw":
            stream = streams[which % len(streams)]
            pool.spooled(stream, min(count, stream.outstanding))
        elif streams and step == "c":
            pool.close(streams.pop(which % len(streams)))
        assert pool.outstanding == sum(stream.outstanding for stream in streams)
        assert pool.outstanding <= budget + SMALL * len(streams)
        for stream in streams:
            assert stream.held <= stream.limit <= stream.size
            assert stream.outstanding >= min(SMALL, stream.size - stream.held)
            assert stream.outstanding <= max(window, SMALL)
    for stream in streams:
        pool.close(stream)
    assert pool.outstanding == 0


def test_after_an_interruption_little_is_in_the_air() -> None:
    pool = CreditPool(32 * LARGE)
    stream = pool.admit(LARGE, 100 * LARGE)
    assert (stream.held, stream.limit) == (LARGE, LARGE + 2 * SMALL)
    assert pool.spooled(stream, SMALL)
    assert stream.outstanding == 2 * SMALL
