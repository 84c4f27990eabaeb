"""Bytes are told by direction, bundle and codec, and add up to the payload."""

from __future__ import annotations

from collections import Counter

import pytest

from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package, Section
from edgeflock.common.wire.framing import framed
from edgeflock.server.costs.traffic import UNKNOWN, Traffic, TrafficBook, parts

INT8 = CodecChoice("int8", zstd=True)
PACKAGE = Package(
    (
        Section(Kind.DELTA, b"", INT8, 100, 100),
        Section(Kind.BUFFERS, b"", IDENTITY, 0, 0),
        Section(Kind.COUNTERS, b"", IDENTITY, 5, 20),
    )
)


def test_of_thousands_only_those_are_asked_for_who_have_moved_anything() -> None:
    book = TrafficBook()
    for number in range(1000):
        book.of(f"c{number}").sent(20)
    book.of("c7").sent(20, 5)
    book.of("c3").received(20, 5)
    book.of("c9").received(20, 5)
    book.strike("c9")
    assert book.moving() == ["c3", "c7"]
    book.of("c7").forget()
    assert (book.moving(), book.moved) == (["c3"], 5)


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [
        (0, 120, [("delta", "int8+zstd", 100), ("counters", "identity", 20)]),
        (90, 15, [("delta", "int8+zstd", 10), ("counters", "identity", 5)]),
        (99, 2, [("delta", "int8+zstd", 1), ("counters", "identity", 1)]),
        (100, 20, [("counters", "identity", 20)]),
        (110, 30, [("counters", "identity", 10), (*UNKNOWN, 20)]),
        (500, 7, [(*UNKNOWN, 7)]),
        (2**64 - 1, 3, [(*UNKNOWN, 3)]),
    ],
)
def test_a_piece_is_divided_among_the_bundles_it_lies_in(
    offset: int, size: int, expected: list[tuple[str, str, int]]
) -> None:
    assert list(parts(PACKAGE, offset, size)) == expected


def test_bundles_add_up_to_the_payload_with_what_came_twice() -> None:
    traffic = Traffic()
    for offset in (0, 60, 60):
        traffic.received(70, 60, PACKAGE, offset)
    traffic.sent(130, 120, PACKAGE)
    traffic.sent(9)
    assert traffic.bundles == Counter(
        {
            ("up", "delta", "int8+zstd"): 140,
            ("up", "counters", "identity"): 40,
            ("down", "delta", "int8+zstd"): 100,
            ("down", "counters", "identity"): 20,
        }
    )
    assert traffic.counted() == {
        "bytes_down": 120,
        "bytes_up": 180,
        "exam_bytes": 0,
        "message_bytes_down": 139,
        "message_bytes_up": 210,
        "wire_bytes_down": framed(130) + framed(9),
        "wire_bytes_up": 3 * framed(70),
    }
    traffic.forget()
    assert traffic == Traffic()


def test_what_is_noted_of_many_messages_stays_small() -> None:
    traffic = Traffic()
    for _ in range(1000):
        traffic.sent(12, 2, PACKAGE)
        traffic.received(7)
    assert len(traffic._down) + len(traffic._up) < 200
    assert traffic.counted()["message_bytes_down"] == 12_000
    assert traffic.counted()["wire_bytes_up"] == 1000 * framed(7)
    assert traffic.bundles == Counter({("down", "delta", "int8+zstd"): 2000})


def test_the_running_total_is_what_all_clients_have_moved_since_the_last_commit() -> None:
    book = TrafficBook()
    for name, size in (("a", 100), ("b", 20), ("a", 3)):
        book.of(name).sent(size + 9, size)
        book.of(name).received(size + 9, size)
    assert book.moved == 2 * (100 + 20 + 3)
    book.of("a").forget()  # with its round
    book.of("a").received(0, 7)
    assert book.moved == 2 * 20 + 7
    stranger = book.of("b")
    book.strike("b")
    stranger.sent(50, 50)  # it is still there, and counts for nobody
    assert (book.moved, book.of("b")) == (7, Traffic())


def test_what_goes_down_for_a_test_of_clients_models_alone_stands_apart_and_is_no_cost() -> None:
    book = TrafficBook()
    mine = book.of("a")
    book.test(True)
    assert book.testing
    for _ in range(2):
        mine.sent(49, 40, PACKAGE)
    mine.sent(5)
    mine.received(30, 20, PACKAGE)  # scores are small, but who sends more is counted
    book.test(False)
    mine.sent(60, 50, PACKAGE)
    assert (book.moved, book.moving()) == (70, ["a"])
    counted = mine.counted()
    assert [counted[name] for name in ("bytes_down", "bytes_up", "exam_bytes")] == [50, 20, 80]
    assert counted["message_bytes_down"] == 9 + 9 + 5 + 60
    assert mine.bundles["down", "delta", "int8+zstd"] == 50
    mine.forget()
    assert (mine, book.moved, book.moving()) == (Traffic(), 0, [])
