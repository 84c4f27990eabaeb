"""What readers ask of a journal: totals and cells agree, a moment is one, earlier versions answer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.common.errors import BadData, MissingData
from edgeflock.server.costs import catalogue
from edgeflock.server.costs.catalogue import together
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.reader import Feed, Reader, snapshot
from support.old_runs import NAMES, unpack
from support.told_run import insert, told_run, write_round, writing


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return told_run(tmp_path / "run", ended=False)


@pytest.fixture
def reader(run_dir: Path) -> Iterator[Reader]:
    with contextlib.closing(Reader(run_dir)) as made:
        yield made


def numbers(costs: object) -> dict[str, float]:
    assert isinstance(costs, dict)
    return {name: value for name, value in costs.items() if isinstance(value, (int, float))}


def test_totals_are_what_the_cells_come_to(reader: Reader) -> None:
    cells = {key: reader.cells(*key) for key in reader.every_round()}
    for key, total in reader.totals("round").items():
        assert total == together(numbers(cell.costs) for cell in cells[key])
    for seat, total in reader.totals("client").items():
        mine = [cell.costs for found in cells.values() for cell in found if cell.seat == seat]
        assert total == together(map(numbers, mine))
        assert total["peak_rss_bytes"] == 1000 * (seat + 3)


def test_a_cell_has_the_clients_name_its_verdict_and_every_column(run_dir: Path, reader: Reader) -> None:
    with writing(run_dir) as journal:
        insert(journal, "rounds", {"epoch": 0, "round": 4, "cohort": "[0, 1]"})
        insert(journal, "costs", {"epoch": 0, "round": 4, "seat": 1, "bytes_down": 7})
        insert(journal, "outcomes", {"epoch": 0, "round": 4, "seat": 0, "digest": b"", "verdict": "late"})
    late, open = reader.cells(0, 4)
    assert (late.client, late.verdict, dict(late.costs)) == ("a", "late", {})
    assert (open.client, open.verdict, open.costs["bytes_down"]) == ("b", "", 7)
    assert tuple(open.costs) == catalogue.names(catalogue.BY_CLIENT)


def test_joules_are_summed_by_who_says_them(run_dir: Path, reader: Reader) -> None:
    with writing(run_dir) as journal:
        journal.execute("UPDATE costs SET energy_j = 2.0, energy_source = 'model' WHERE seat = 0")
        journal.execute("UPDATE costs SET energy_j = 3.0, energy_source = 'rapl' WHERE seat = 1")
    total = reader.totals("round")[0, 1]
    assert (total["energy_j"], total["model_j"], total["sensor_j"]) == (5.0, 2.0, 3.0)
    sources = {key: row["energy_j"] for key, row in reader.totals("source").items()}
    assert sources == {(0, "model"): 6.0, (1, "rapl"): 9.0}


def test_answers_within_a_snapshot_are_of_one_moment(run_dir: Path) -> None:
    with snapshot(run_dir) as reader:
        before = len(reader.rounds())
        with writing(run_dir) as journal:
            write_round(journal, 0, 4, 2)
        assert (len(reader.rounds()), (0, 4) in reader.totals("round")) == (before, False)
    with snapshot(run_dir) as reader:
        assert (len(reader.rounds()), (0, 4) in reader.totals("round")) == (before + 1, True)


def test_the_run_stands_on_no_round_that_was_gone_back_on(run_dir: Path, reader: Reader) -> None:
    with writing(run_dir) as journal:
        journal.execute("UPDATE meta SET value = '1' WHERE name = 'epoch'")
        insert(journal, "rounds", {"epoch": 1, "round": 1, "cohort": "[]", "committed": 1})
        write_round(journal, 1, 2, 2)
        insert(journal, "rounds", {"epoch": 1, "round": 3, "cohort": "[0]"})
    assert [(row.epoch, row.number) for row in reader.rounds() if row.stands] == [(0, 1), (1, 2)]
    assert reader.newest(1) == 2
    assert [reader.last_held(number) for number in (3, 1, 9)] == [1, 0, None]


def test_the_best_model_is_one_of_the_rounds_that_the_run_stands_on(run_dir: Path, reader: Reader) -> None:
    with writing(run_dir) as journal:
        insert(journal, "rounds", {"epoch": 1, "round": 1, "cohort": "[]", "committed": 1})
        score = {"model": "global", "value": 0.15, "loss": 1.0, "samples": 50}
        insert(journal, "evaluations", {"epoch": 1, "round": 1, **score})
    assert reader.best() == (0.15, 1)


def test_sums_of_rounds_know_what_does_not_add_up(run_dir: Path, reader: Reader) -> None:
    with writing(run_dir) as journal:
        for round, most in ((1, 7.0), (2, 9.0), (3, 8.0)):
            key = {"epoch": 0, "round": round, "name": "server_peak_rss_bytes"}
            insert(journal, "round_costs", {**key, "value": most})
    found = reader.round_totals()
    assert (found["open_s"], found["server_peak_rss_bytes"]) == (12.0, 9.0)
    assert reader.round_costs(0, 1, 2) == {(0, 2): reader.round_costs()[0, 2]}


def test_events_come_in_pages_and_backwards(run_dir: Path, reader: Reader) -> None:
    with writing(run_dir) as journal:
        for number in range(4):
            write_event(journal, "even" if number % 2 == 0 else "odd", {"n": number}, 5.0)
    first = reader.events(2, 3)
    assert [event.fields["n"] for event in first] == [0, 1, 2]
    assert [event.fields["n"] for event in reader.events(first[-1].cursor)] == [3]
    assert [event.fields["n"] for event in reader.events_before(7, 2, ["odd"])] == [0, 2]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_an_earlier_version_answers_what_it_knows(name: str, tmp_path: Path) -> None:
    with snapshot(unpack(name, tmp_path).run_dir) as reader:
        cells = [cell.costs for key in reader.every_round() for cell in reader.cells(*key)]
        moved = sum(int(costs.get("bytes_up") or 0) for costs in cells)
        assert moved == sum(total["bytes_up"] for total in reader.totals("client").values()) > 0
        grown = reader.costs_since(0, reader.last_cost())
        assert moved == sum(growth.sums["bytes_up"] for growth in grown.values())


def test_a_feed_waits_for_its_journal_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "run")
    assert feed.read() == []
    told_run(tmp_path / "run")
    assert [event.name for event in feed.read()] == ["client_joined"] * 2
    assert feed.read() == []
    feed.close()
    (tmp_path / "run" / "journal.sqlite").write_bytes(b"no journal at all" * 100)
    with pytest.raises(BadData, match="cannot be read as a journal: file is not a database"):
        Feed(tmp_path / "run").read()


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingData, match="is not a run directory: it is a file"):
        Reader(tmp_path / "file")
    with pytest.raises(MissingData, match="is not a run directory: it does not exist"):
        Reader(tmp_path / "none")


def test_the_catalogue_names_every_column_once_with_its_unit() -> None:
    units = {"bytes": ("bytes", "bytes_down", "bytes_up"), "seconds": ("_s", "_busy"), "energy": ("_j",)}
    for table in (catalogue.BY_CLIENT, catalogue.BY_ROUND, catalogue.BY_BUNDLE):
        assert len(set(catalogue.names(table))) == len(table)
        for column in table:
            assert column.name.endswith(units.get(column.quantity, "")), column


def test_rows_together_are_sums_and_of_peaks_the_highest() -> None:
    rows = [{"bytes_up": 2, "temperature_c": -3.0}, {"bytes_up": 5, "temperature_c": -4.0, "novel": 1.5}]
    assert together(rows) == {"bytes_up": 7, "temperature_c": -3.0, "novel": 1.5}
    assert together([]) == {}


def test_a_loss_that_was_not_a_number_is_read_as_one(run_dir: Path) -> None:
    with writing(run_dir) as journal:
        journal.execute("UPDATE evaluations SET loss = NULL WHERE round = 3")
    with contextlib.closing(Reader(run_dir)) as reader:
        found = reader.evaluations()[(0, 3)]["global"]
    assert (found.value, math.isnan(found.loss)) == (0.3, True)
