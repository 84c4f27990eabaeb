"""The ledger makes rows of values: over several lives, once for a commit, and with what follows from them."""

from __future__ import annotations

from edgeflock.common.payload.package import IDENTITY, Kind, Package, Section
from edgeflock.server.costs.ledger import Ledger, MemberCosts
from edgeflock.server.costs.traffic import Traffic

PACKAGE = Package((Section(Kind.DELTA, b"", IDENTITY, 25, 100),), {"samples": 10.0, "steps": 2.0})
DELTA_UP = ("up", "delta", "identity")


def member(size: int, *, complete: bool = True) -> MemberCosts:
    """A member of whose update so many bytes came."""
    traffic = Traffic()
    traffic.received(size + 8, size, PACKAGE)
    return MemberCosts(traffic, {"cpu_s": 1.5}, PACKAGE if complete else None, {"flops": 7.0})


def test_a_row_holds_what_was_counted_what_was_said_and_what_follows_from_both() -> None:
    rows = Ledger().rows(3, {0: member(100), 1: member(60, complete=False)})
    whole, part = rows.rows[0], rows.rows[1]
    assert rows.round == 3
    assert (whole["bytes_up"], whole["message_bytes_up"], whole["resent_bytes"]) == (100, 108, 0)
    assert (whole["samples"], whole["steps"], whole["cpu_s"], whole["flops"]) == (10, 2, 1.5, 7.0)
    assert (part["bytes_up"], part["cpu_s"]) == (60, 1.5)
    assert not {"samples", "flops"} & part.keys()
    assert rows.bundles == {0: {DELTA_UP: 100}, 1: {DELTA_UP: 60}}


def test_what_a_life_before_has_counted_is_in_the_rows_and_is_not_charged_again() -> None:
    ledger = Ledger()
    ledger.resume({0: ({"bytes_up": 30}, {DELTA_UP: 30})})
    rows = ledger.rows(1, {0: member(100)})
    assert (rows.rows[0]["bytes_up"], rows.rows[0]["resent_bytes"]) == (130, 30)
    assert rows.fresh[0]["bytes_up"] == 100
    assert rows.bundles[0] == {DELTA_UP: 130}


def test_a_round_is_closed_once_and_its_bytes_are_counted_anew_from_there() -> None:
    ledger, members = Ledger(), {0: member(100)}
    rows, first = ledger.close(1, members)
    assert (first, rows.rows[0]["bytes_up"], ledger.has_closed(1)) == (True, 100, True)
    assert ledger.close(1, members) == (rows, False)  # a full disk asks again
    assert ledger.rows(2, members).rows[0]["bytes_up"] == 0
    assert not ledger.has_closed(2)
