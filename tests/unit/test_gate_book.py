"""Which gate is whose: spread evenly, kept while it is here, advice that a client may leave."""

from __future__ import annotations

from collections import Counter

from edgeflock.server.service.gate_book import GateBook


def test_clients_are_spread_evenly_and_stay() -> None:
    book = GateBook()
    assert (book.home("c0"), book.addresses) == ("", ())
    for name in ("b", "a", "c"):
        book.come(name, f":{name}")
    homes = {f"c{number}": book.home(f"c{number}") for number in range(30)}
    assert Counter(homes.values()) == {":a": 10, ":b": 10, ":c": 10}
    assert {client: book.home(client) for client in homes} == homes
    assert book.addresses == (":a", ":b", ":c")


def test_who_has_come_by_way_of_a_gate_stays_there_and_who_has_lost_it_gets_another() -> None:
    book = GateBook()
    for name in ("a", "b"):
        book.come(name, f":{name}")
    assert book.home("c0") == ":a"
    assert book.home("c0", "b") == ":b"
    assert book.home("c0") == ":b"
    book.go("b")
    assert (book.address("b"), book.home("c0")) == (None, ":a")
    book.go("a")
    assert book.home("c0") == ""


def test_a_gate_that_says_something_is_not_silent() -> None:
    book = GateBook()
    book.come("a", ":a")
    before = book.silent_s("a")
    book.hear("a")
    assert book.silent_s("a") >= 0 <= before
