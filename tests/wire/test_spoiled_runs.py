"""Run directories that are missing, damaged, foreign or locked: every command says so in one sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeflock.common.command import entry
from edgeflock.lab.becoming import program
from edgeflock.lab.cli import group
from support.told_run import told_run, writing

pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
pytest.importorskip("jinja2", reason="edgeflock[lab] is not installed")
pytest.importorskip("tensorboard", reason="edgeflock[tensorboard] is not installed")

COMMANDS = ("report", "export", "tensorboard", "events")


def fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> str:
    """Call fl-lab as its script does; return the one sentence with which it ends."""
    monkeypatch.setattr(sys, "argv", ["fl-lab", *map(str, words)])
    code = entry._run(group, "fl-lab")
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("fl-lab: error: ")
    return said.err.removeprefix("fl-lab: error: ").rstrip()


def journal_of(content: bytes) -> Callable[[Path], None]:
    def spoil(run_dir: Path) -> None:
        for path in run_dir.glob("journal.sqlite*"):
            path.unlink()
        (run_dir / "journal.sqlite").write_bytes(content)

    return spoil


def statement(words: str) -> Callable[[Path], None]:
    def spoil(run_dir: Path) -> None:
        with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as connection:
            connection.execute(words)
            connection.commit()

    return spoil


def half_of_the_pages(run_dir: Path) -> None:
    path = run_dir / "journal.sqlite"
    whole = path.read_bytes()
    journal_of(whole[:4096] + b"\xff" * (len(whole) - 4096))(run_dir)


def letters_in_the_schema(run_dir: Path) -> None:
    path = run_dir / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:  # all of it into the one file
        connection.execute("PRAGMA journal_mode = DELETE")
    journal_of(path.read_bytes().replace(b"tableseatsseats", b"tablese\xc8tsseats"))(run_dir)


def a_folder_instead(run_dir: Path) -> None:
    journal_of(b"")(run_dir)
    (run_dir / "journal.sqlite").unlink()
    (run_dir / "journal.sqlite").mkdir()


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "removed": (shutil.rmtree, "is not a run directory: it does not exist"),
    "empty journal": (journal_of(b""), "is not the journal of a run: it has no tables"),
    "garbage": (journal_of(b"garbage " * 999), "cannot be read as a journal: file is not a database"),
    "overwritten pages": (half_of_the_pages, "cannot be read as a journal: database disk image is malformed"),
    "letters of the schema": (letters_in_the_schema, "cannot be read as a journal: "),
    "a folder": (a_folder_instead, "is not a run directory: it has no journal.sqlite"),
    "another program's": (
        statement("DROP TABLE seats"),
        "is not the journal of a run: it has no table seats",
    ),
    "a later version": (statement("PRAGMA user_version = 99"), "has schema version 99, this edgeflock reads"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_run_is_refused_in_a_sentence(
    how: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil, sentence = SPOILED[how]
    run_dir = told_run(tmp_path / "run")
    spoil(run_dir)
    assert sentence in fails(capsys, monkeypatch, command, run_dir)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_and_an_empty_folder_are_no_runs(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    is_file = fails(capsys, monkeypatch, command, tmp_path / "file")
    assert is_file == f"{tmp_path}/file is not a run directory: it is a file"
    (tmp_path / "folder").mkdir()
    is_empty = fails(capsys, monkeypatch, command, tmp_path / "folder")
    assert is_empty == f"{tmp_path}/folder is not a run directory: it has no journal.sqlite"


@pytest.mark.parametrize("command", ["report", "events", "tensorboard"])
@pytest.mark.parametrize("text", ["{nonsense", "[1, 2]"])
def test_events_without_fields_are_refused_in_a_sentence(
    text: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_dir = told_run(tmp_path / "run")
    statement(f"UPDATE events SET fields = '{text}'")(run_dir)
    assert "journal.sqlite cannot be read as a journal: " in fails(capsys, monkeypatch, command, run_dir)


@pytest.mark.parametrize("command", ["report", "export"])
def test_a_run_whose_configuration_is_gone_or_garbage_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = told_run(tmp_path / "run")
    (run_dir / "run.toml").write_bytes(b"\xff\xfe")
    assert fails(capsys, monkeypatch, command, run_dir).endswith("run.toml' is not UTF-8 text")
    (run_dir / "run.toml").unlink()
    assert "run.toml" in fails(capsys, monkeypatch, command, run_dir)


def test_a_model_that_is_gone_is_refused_by_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("UPDATE rounds SET model_digest = 'a', state_digest = 'b'")
    assert "rounds/000003" in fails(capsys, monkeypatch, "export", run_dir)


WITHOUT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("journal.sqlite", "journal.sqlite cannot be read: Permission denied"),
        ("run.toml", "cannot read the configuration file"),
    ],
)
def test_files_that_may_not_be_read_are_named(name: str, sentence: str, tmp_path: Path) -> None:
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root may read everything, unless it gives that up
        before = WITHOUT
        if not shutil.which(WITHOUT[0]):
            pytest.skip("no setpriv is installed here")
        if subprocess.run([*WITHOUT, "true"], capture_output=True, check=False).returncode:
            pytest.skip("root cannot give up its rights here")
    run_dir = told_run(tmp_path / "run")
    (run_dir / name).chmod(0)
    done = subprocess.run(
        [*before, *program("fl-lab"), "report", str(run_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sentence in done.stderr
