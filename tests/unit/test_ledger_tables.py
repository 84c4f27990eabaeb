"""fl-lab export --ledger: what stands in the tables, what is refused, and no file is half written."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from edgeflock.common.command import extras
from edgeflock.common.errors import BadData, UsageError
from edgeflock.lab.cli import group
from edgeflock.lab.export import ledger
from edgeflock.server.costs.catalogue import BY_CLIENT, names
from support.told_run import insert, told_run, write_round, writing

HAS_PARQUET = extras.installed("pyarrow")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that goes on in a second epoch: round 3 was lost, and round 4 is open."""
    made = told_run(tmp_path / "run", ended=False)
    with writing(made) as journal:
        journal.execute("UPDATE meta SET value = '1' WHERE name = 'epoch'")
        insert(journal, "rounds", {"epoch": 1, "round": 2, "cohort": "[]", "committed": 1})
        write_round(journal, 1, 3, 2)
        insert(journal, "rounds", {"epoch": 1, "round": 4, "cohort": "[0, 1]"})
        insert(journal, "costs", {"epoch": 1, "round": 4, "seat": 1, "bytes_down": 2**53 + 1})
        journal.execute("UPDATE costs SET energy_j = 0.1, energy_source = 'rapl' WHERE seat = 0")
    return made


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def refusal(*arguments: str | Path) -> str:
    with pytest.raises(UsageError) as caught:
        group.main(["export", *map(str, arguments)], prog_name="fl-lab", standalone_mode=False)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_client_and_round_has_a_row_with_exact_numbers(run_dir: Path, tmp_path: Path) -> None:
    assert ledger.write(run_dir, tmp_path / "a.csv") == {
        tmp_path / "a.csv": 9,
        tmp_path / "a.rounds.csv": 5,
    }
    rows = table(tmp_path / "a.csv")
    assert tuple(rows[0]) == ("epoch", "round", "seat", "client", "verdict", *names(BY_CLIENT))
    first, last = rows[0], rows[-1]
    assert (first["epoch"], first["round"], first["seat"], first["client"]) == ("0", "1", "0", "a")
    assert (first["verdict"], first["energy_j"], first["energy_source"]) == ("counted", "0.1", "rapl")
    assert (last["epoch"], last["round"], last["verdict"]) == ("1", "4", "")
    assert (last["bytes_down"], last["train_s"]) == (str(2**53 + 1), "")


def test_every_round_says_whether_the_run_stands_on_it(run_dir: Path, tmp_path: Path) -> None:
    ledger.write(run_dir, tmp_path / "a.csv")
    rows = table(tmp_path / "a.rounds.csv")
    assert [(row["epoch"], row["round"], row["stands"]) for row in rows] == [
        ("0", "1", "True"),
        ("0", "2", "True"),
        ("0", "3", "False"),
        ("1", "3", "True"),
        ("1", "4", "False"),
    ]
    assert (rows[0]["open_s"], rows[0]["paused_s"], "loss" in rows[0]) == ("4.0", "", False)


@pytest.mark.skipif(not HAS_PARQUET, reason="edgeflock[parquet] is not installed")
def test_parquet_holds_the_same_with_types_and_units(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet

    monkeypatch.setattr(ledger, "_GROUP", 4)
    ledger.write(run_dir, tmp_path / "a.parquet")
    ledger.write(run_dir, tmp_path / "a.csv")
    for name in ("a", "a.rounds"):
        found = pyarrow.parquet.read_table(tmp_path / f"{name}.parquet").to_pylist()
        texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in found]
        assert texts == table(tmp_path / f"{name}.csv")
    field = pyarrow.parquet.read_schema(tmp_path / "a.parquet").field("bytes_up")
    assert (str(field.type), field.metadata) == ("int64", {b"unit": b"B"})


def test_standard_output_gets_the_rows_by_client(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group.main(["export", str(run_dir), "--ledger", "-"], prog_name="fl-lab", standalone_mode=False)
    ledger.write(run_dir, tmp_path / "a.csv")
    assert capsys.readouterr().out == (tmp_path / "a.csv").read_text("utf-8")


def test_what_is_no_place_for_it_is_refused(run_dir: Path, tmp_path: Path) -> None:
    assert refusal(run_dir, "--ledger", tmp_path / "a.txt").endswith(
        "a.txt' has no ending that says a format, allowed is .csv or .parquet, or - for standard output"
    )
    assert refusal(run_dir, "--ledger", run_dir / "rounds" / "a.csv").endswith(
        f"is among the run's own files, allowed is another folder, such as {run_dir / 'report'}"
    )
    (tmp_path / "file").touch()
    assert "file/a.csv' cannot be written: " in refusal(run_dir, "--ledger", tmp_path / "file" / "a.csv")
    assert refusal(run_dir, "--ledger", tmp_path / "a.csv", "--which", "best") == (
        "--ledger writes no model: --which needs a call of its own"
    )
    ledger.write(run_dir, run_dir / "report" / "a.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_parquet_that_is_missing_is_named(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    assert refusal(run_dir, "--ledger", tmp_path / "a.parquet").startswith(
        "--ledger FILE.parquet needs pyarrow, which is not installed: "
    )


def test_files_stay_as_they_were_if_the_journal_cannot_be_read(run_dir: Path, tmp_path: Path) -> None:
    ledger.write(run_dir, tmp_path / "a.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    with writing(run_dir) as journal:
        journal.execute("PRAGMA ignore_check_constraints = ON")
        journal.execute("UPDATE rounds SET cohort = 'nonsense' WHERE round = 3 AND epoch = 0")
    with pytest.raises(BadData, match="cannot be read as a journal"):
        ledger.write(run_dir, tmp_path / "a.csv")
    assert {path.name: path.read_bytes() for path in tmp_path.glob(".*csv")} == {}
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == before
