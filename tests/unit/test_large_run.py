"""Whatever reads a run of very many clients is bounded: pages, tables, sentences, and what a start takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeflock.common.command.crowd import EVERYBODY
from edgeflock.lab import history
from edgeflock.lab.history import History
from edgeflock.lab.operate import at_rest
from edgeflock.lab.report import tables
from edgeflock.lab.report.command import report
from edgeflock.server.console import sentences
from edgeflock.server.start import startup
from edgeflock.server.start.resolve import combine
from support.large_run import LargeRun, large_run

CLIENTS, FULL = 300, LargeRun()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_run(tmp_path_factory.mktemp("large"), LargeRun(CLIENTS, cohort=100, rounds=3))


@pytest.fixture(scope="module")
def found(run_dir: Path) -> History:
    return history.read(run_dir)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history.read(large_run(tmp_path_factory.mktemp("few"), LargeRun(EVERYBODY, cohort=5, rounds=2)))


def test_a_report_has_a_row_for_whoever_stands_out_and_says_how_all_spread(found: History) -> None:
    clients, spreads = tables.clients(found), tables.spreads(found)
    assert clients is not None
    assert spreads is not None
    assert 3 < len(clients.rows) < EVERYBODY
    slowest = max(found.clients, key=lambda client: client.costs.get("train_s", 0.0))
    (row,) = [row for row in clients.rows if row[0] == slowest.name]
    assert "train" in row[1].split(", ")
    worst = min(
        (one for one in found.clients if one.scores), key=lambda one: one.scores["client_local"].value
    )
    assert "worst accuracy, client local" in next(row[1] for row in clients.rows if row[0] == worst.name)
    samples = {row[0]: row for row in spreads.rows}["samples"]
    most = max(client.samples or 0 for client in found.clients)
    assert (samples[5], samples[-1]) == (f"{most}", f"{CLIENTS}")


def test_each_of_few_has_a_row_of_its_own(few: History) -> None:
    clients = tables.clients(few)
    assert clients is not None
    assert [row[0] for row in clients.rows] == [client.name for client in few.clients]
    assert tables.spreads(few) is None


def test_devices_of_too_many_kinds_are_told_fact_by_fact(found: History) -> None:
    devices = tables.devices(found)
    assert devices is not None
    assert devices.heads == ("of the devices", "is", "clients")
    versions = {row[1]: int(row[2]) for row in devices.rows if row[0] == "edgeflock"}
    assert (set(versions), sum(versions.values())) == ({"1.0.0", "0.9.0"}, CLIENTS)


def test_a_status_names_those_to_be_looked_at_and_finds_the_others(found: History) -> None:
    text = at_rest.words(found)
    assert len(text.splitlines()) < EVERYBODY + 12
    assert re.search(r"^versions edgeflock 1\.0\.0 \(\d+\), 0\.9\.0 \(\d+\); torch ", text, re.MULTILINE)
    assert f"... and {CLIENTS - EVERYBODY} more: --find ID" in text
    missed = {one.name: sum(one.verdicts.values()) - one.verdicts.get("counted", 0) for one in found.clients}
    assert f"  {max(missed, key=missed.__getitem__)} " in text
    (line,) = [line for line in at_rest.words(found, find="c299").splitlines() if line.startswith("  ")]
    assert line.split()[:2] == ["299", "c299"]
    assert at_rest.words(found, find="c-299").endswith("\nno client's id holds 'c-299'")


def test_the_story_names_a_few_and_counts_the_rest(found: History) -> None:
    lines = list(sentences.lines(found.events))
    assert len(lines) < 20
    assert max(map(len, lines)) < 1000
    for words in ("seats are given to c0, c1, c2, c3 and 296 more", "c0, c1, c2, c3 and 296 more join"):
        assert any(words in line for line in lines)


def test_the_story_of_few_tells_of_each(few: History) -> None:
    lines = list(sentences.lines(few.events))
    assert sum(" joins " in line for line in lines) == EVERYBODY


def test_a_server_takes_a_large_run_up_where_it_was(tmp_path: Path) -> None:
    run_dir = large_run(tmp_path, LargeRun(CLIENTS, cohort=100, rounds=3, ended=False))
    with startup.taken_up(startup.build(combine({"run_dir": run_dir})), run_dir) as parts:
        resumed = parts.resumed
    assert (resumed.committed, len(resumed.seats), len(resumed.samples)) == (3, CLIENTS, CLIENTS)
    assert resumed.open_round is not None
    assert (resumed.open_round.round, len(resumed.open_round.cohort)) == (4, 100)


@pytest.mark.long
def test_the_page_of_ten_thousand_clients_is_no_larger_than_that_of_three_hundred(
    run_dir: Path, tmp_path: Path
) -> None:
    full = large_run(tmp_path, FULL)
    for run, out in ((run_dir, "some"), (full, "full")):
        done = CliRunner().invoke(report, [str(run), "--out", str(tmp_path / out)])
        assert done.exit_code == 0, done.output
    some, many = ((tmp_path / out / "index.html").stat().st_size for out in ("some", "full"))
    assert many < 1.5 * some
    assert many < 2e6
