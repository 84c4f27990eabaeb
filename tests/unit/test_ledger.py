"""The ledger makes rows of values: over several lives, once for a commit, and with what follows from them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from edgeflock.common.payload.package import IDENTITY, Kind, Package, Section
from edgeflock.server.costs.budget import Spent
from edgeflock.server.costs.ledger import Ledger, MemberCosts
from edgeflock.server.costs.rows import Costs, LateCosts, raised
from edgeflock.server.costs.traffic import Traffic
from edgeflock.server.journal.costs import write, write_rows
from edgeflock.server.journal.schema import connect

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
    assert "samples" not in part
    assert part["flops"] == 7.0  # that too little came of it was paid all the same
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


def test_bytes_of_a_round_in_which_a_server_was_killed_are_marked_as_the_least_that_they_are() -> None:
    """What it had counted since it wrote last is gone; one that was parked has written all."""
    ledger = Ledger()
    ledger.resume({0: ({"bytes_up": 30}, {})}, cut=True)
    assert [row.get("at_least") for row in ledger.rows(1, {0: member(5), 1: member(5)}).rows.values()] == [
        1,
        1,
    ]
    ledger.close(1, {0: member(5)})
    assert "at_least" not in ledger.rows(2, {0: member(5)}).rows[0]
    ledger = Ledger()
    ledger.resume({0: ({"at_least": 1}, {}), 1: ({}, {})})  # parked since, but killed before that
    assert [row.get("at_least") for row in ledger.rows(1, {0: member(5), 1: member(5)}).rows.values()] == [
        1,
        None,
    ]


def test_what_comes_after_the_last_commit_is_added_to_its_rows() -> None:
    ledger, traffic = Ledger(), Traffic()
    assert ledger.after({0: traffic}) is None
    ledger.close(4, {0: member(100)})
    traffic.received(28, 20, PACKAGE)
    rows = ledger.after({0: traffic})
    assert rows is not None
    assert (rows.round, rows.rows[0]["bytes_up"], rows.bundles[0]) == (4, 120, {DELTA_UP: 120})


def test_a_further_statement_raises_what_is_known_and_never_lowers_it() -> None:
    before = {"cpu_s": 2.0, "steps": None, "wait_s": 1.0}
    assert raised(before, {"cpu_s": 1.5, "steps": 7, "wait_s": None, "train_s": None}) == {
        "cpu_s": 2.0, "steps": 7, "wait_s": 1.0, "train_s": None
    }  # fmt: skip
    assert raised(before, {"cpu_s": 2.5})["cpu_s"] == 2.5


def test_a_later_report_lowers_nothing_that_was_stated(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(connect(path)) as journal:
        journal.execute("INSERT INTO seats (seat, client_id) VALUES (0, 'a')")
        for row in (
            {"steps": 4000, "train_s": 40.0, "energy_j": 457.0, "energy_source": 3, "bytes_up": 9},
            {"steps": 0, "train_s": 0.0, "energy_j": 0.02, "wait_s": 3.0, "bytes_up": 5, "cpu_s": None},
            {"train_s": None, "wait_s": 4.0, "cpu_s": 1.5, "energy_source": None},
        ):
            write_rows(journal, 0, {(1, 0): row})
        columns = "steps, train_s, energy_j, energy_source, wait_s, cpu_s, bytes_up"
        assert journal.execute(f"SELECT {columns} FROM costs").fetchall() == [
            (4000, 40.0, 457.0, "model", 4.0, 1.5, 5)  # the server's own counts are as it says them
        ]


def test_what_is_said_later_of_a_round_belongs_to_the_epoch_in_which_it_was_held(tmp_path: Path) -> None:
    with contextlib.closing(connect(tmp_path / "journal.sqlite")) as journal:
        journal.execute("INSERT INTO seats (seat, client_id) VALUES (0, 'a')")
        for epoch, round, cohort in ((0, 1, "[0]"), (0, 2, "[0]"), (1, 1, "[]"), (1, 2, "[0]")):
            journal.execute(
                "INSERT INTO rounds (epoch, round, cohort) VALUES (?, ?, ?)", (epoch, round, cohort)
            )
        late = {(1, 0): {"cpu_s": 1.0}, (2, 0): {"cpu_s": 2.0}}
        write(journal, 1, Costs(LateCosts(late), None, Spent({}, {}, {})))
        found = journal.execute("SELECT epoch, round, cpu_s FROM costs ORDER BY round").fetchall()
        assert found == [(0, 1, 1.0), (1, 2, 2.0)]


def test_books_are_whole_when_the_last_of_a_life_is_written_and_not_before(tmp_path: Path) -> None:
    """Else what a killed server had counted would not be marked as lacking."""
    with contextlib.closing(connect(tmp_path / "journal.sqlite")) as journal:
        costs = Costs(LateCosts(), None, Spent({}, {}, {}))
        found = []
        for given in (costs, replace(costs, whole=True)):
            write(journal, 0, given)
            found.append(journal.execute("SELECT name, value FROM meta").fetchall())
        assert found == [[], [("books_whole", "1")]]
