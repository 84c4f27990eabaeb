"""Where a client turns: to the gate it was told, to others when one fails, to what it was given at last."""

from __future__ import annotations

from random import Random

from edgeflock.client.deciding.route import SHUNNED_S, Route


def test_a_client_goes_where_it_was_told_and_nowhere_if_it_is_there() -> None:
    route = Route(["server"], Random(1))
    assert route.at == "server"
    assert not route.follow((), None, 0.0)
    assert route.follow(("a", "b"), "b", 0.0)
    assert (route.at, route.told) == ("b", ("a", "b"))
    assert not route.follow(("a", "b"), "b", 1.0)


def test_a_gate_that_fails_is_left_alone_for_a_while() -> None:
    route = Route(["server"], Random(1))
    route.follow(("a", "b"), "b", 0.0)
    assert route.fail(1.0)
    assert route.at == "a"
    assert route.fail(2.0)
    assert route.at == "server"
    assert not route.follow(("a", "b"), "b", 3.0)  # it has failed a moment ago
    assert route.at == "server"
    assert route.follow(("a", "b"), "b", 1.0 + SHUNNED_S)
    assert route.at == "b"


def test_when_all_have_failed_the_one_that_failed_first_is_next() -> None:
    route = Route(["server"], Random(1), ["a"])
    turns = []
    for now in range(5):
        route.fail(float(now))
        turns.append(route.at)
    assert turns == ["a", "server", "a", "server", "a"]


def test_with_one_address_there_is_nowhere_to_turn() -> None:
    route = Route(["server"], Random(1))
    assert not route.fail(0.0)
    assert route.at == "server"


def test_those_that_a_gate_has_lost_spread_over_the_others() -> None:
    routes = [Route(["server"], Random(seed)) for seed in range(60)]
    for route in routes:
        route.follow(("a", "b", "c", "d"), "a", 0.0)
        route.fail(1.0)
    assert {route.at for route in routes} == {"b", "c", "d"}
