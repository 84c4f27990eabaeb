"""For how long a process has trained in a round, whoever of its clients it was."""

from __future__ import annotations

from edgeflock.client.training.span import Span, Spans


class Clock:
    """Goes on when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_trainings_one_after_the_other_add_up_and_what_lies_between_does_not() -> None:
    clock = Clock()
    span = Span(1, clock)
    for seconds in (2.0, 3.0):
        clock.now += 7  # fetching
        with span:
            clock.now += seconds
    assert span.seconds == 5.0


def test_trainings_at_the_same_time_count_once() -> None:
    clock = Clock()
    span = Span(2, clock)
    with span:
        clock.now += 2
        with span:
            clock.now += 3
            assert span.seconds == 5.0  # while they go on, too
        clock.now += 1
    assert span.seconds == 6.0


def test_tests_of_own_models_are_no_training_and_share_the_slots() -> None:
    clock = Clock()
    span = Span(2, clock)
    with span:
        clock.now += 5
    span.less(4.0)
    assert span.seconds == 3.0
    span.less(100.0)
    assert span.seconds == 0.0


def test_a_training_that_fails_has_taken_its_time() -> None:
    clock = Clock()
    span = Span(1, clock)
    try:
        with span:
            clock.now += 2
            raise ValueError
    except ValueError:
        pass
    assert span.seconds == 2.0


def test_clients_of_one_round_share_a_span_and_every_round_begins_anew() -> None:
    spans = Spans(1, Clock())
    first = spans.of("a", 1)
    assert spans.of("a", 1) is first
    assert spans.of("b", 1) is not first
    second = spans.of("a", 2)
    assert second is not first
    late = spans.of("a", 1)  # of a client that is behind: it must not take the newest one's place
    assert late not in (first, second)
    assert spans.of("a", 2) is second
