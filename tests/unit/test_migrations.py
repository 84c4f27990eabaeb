"""Runs of every earlier version: brought up to date by whoever takes them up, left as they are by readers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.common.errors import BadData, CorruptCheckpoint, UsageError
from edgeflock.lab.history import read
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_toml import from_toml, to_toml
from edgeflock.server.journal.journal import Journal, consult
from edgeflock.server.journal.reader import Feed, Reader
from edgeflock.server.journal.schema import SCHEMA_VERSION, connect, read_only
from edgeflock.server.start.build import options_told
from edgeflock.server.start.resolve import combine, resolve
from edgeflock.server.start.startup import build, taken_up
from support.old_runs import NAMES, PARKED, OldRun, unpack

every_version = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def old(tmp_path: Path, name: str) -> OldRun:
    return unpack(name, tmp_path)


def shape(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return columns, keys and triggers of every table, however they came about."""
    query = "SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    found: dict[str, list[tuple[object, ...]]] = {}
    for name, kind, sql in connection.execute(query).fetchall():
        columns = sorted(connection.execute(f"SELECT name, type, pk FROM pragma_table_info('{name}')"))
        parents = sorted(
            connection.execute(f'SELECT "from", "table", "to" FROM pragma_foreign_key_list(\'{name}\')')
        )
        found[name] = [*columns, *parents] if kind == "table" else [(sql,)]
    return found


def content(folder: Path) -> dict[str, str]:
    """Return the hash of every file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_version_has_its_runs() -> None:
    """Of today's there are some, too, that began with other options."""
    assert {int(name[1]) for name in NAMES} - {SCHEMA_VERSION} == set(range(1, SCHEMA_VERSION))


@every_version
def test_the_tables_become_those_of_today(old: OldRun, tmp_path: Path) -> None:
    with (
        contextlib.closing(connect(old.journal)) as there,
        contextlib.closing(connect(tmp_path / "new.sqlite")) as new,
    ):
        assert shape(there) == shape(new)
        assert there.execute("PRAGMA foreign_key_check").fetchall() == []


@every_version
def test_what_was_decided_is_known_and_sealed_anew(old: OldRun) -> None:
    before = consult(old.journal)
    with contextlib.closing(Journal(old.journal)) as journal:
        known = journal.ask(lambda past: past.resumed()).result()
    assert (known, known.seats) == (before, ((0, "c0"), (1, "c1")))
    with contextlib.closing(Journal(old.journal)) as again:  # every seal holds
        assert again.ask(lambda past: past.resumed()).result() == known


@pytest.mark.parametrize("name", PARKED)
def test_the_open_round_has_the_roster_of_its_opening(old: OldRun) -> None:
    """Versions that did not write it down took who was ready at the time."""
    with contextlib.closing(Journal(old.journal)) as journal:
        known = journal.ask(lambda past: past.resumed()).result()
        roster = journal.ask(lambda past: past.roster(2)).result()
    assert known.open_round is not None
    assert (known.committed, known.open_round.round, known.open_round.cohort) == (1, 2, (0, 1))
    assert roster == known.samples == {0: 1912, 1: 1911}


@every_version
def test_readers_need_no_directory_that_they_may_write(old: OldRun, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(old.run_dir)
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    history = read(old.run_dir)
    with contextlib.closing(Feed(old.run_dir)) as feed:
        names = [event.name for event in feed.read()]
    assert [client.name for client in history.clients] == ["c0", "c1"]
    assert names[0] == "run_started"
    assert content(old.run_dir) == before


@every_version
def test_a_reader_goes_on_when_the_run_is_taken_up(old: OldRun) -> None:
    """A dashboard may show a run at rest that a server of today then goes on with."""
    with contextlib.closing(Feed(old.run_dir)) as feed:
        feed.read()
        with contextlib.closing(Journal(old.journal)) as journal:
            journal.note("run_started", life=2).result()
            assert [event.fields for event in feed.read()] == [{"life": 2}]


@pytest.mark.parametrize("name", ["v4", "v5", "v6", "v7"])
def test_a_row_that_nobody_wrote_is_not_sealed_anew(old: OldRun) -> None:
    with contextlib.closing(sqlite3.connect(old.journal)) as behind_its_back:
        for (trigger,) in behind_its_back.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            behind_its_back.execute(f"DROP TRIGGER {trigger}")
        behind_its_back.execute("UPDATE rounds SET model_digest = 'another' WHERE round = 1")
        behind_its_back.commit()
    before = old.journal.read_bytes()
    for use in (Journal, consult):
        with pytest.raises(CorruptCheckpoint, match="is damaged"):
            use(old.journal)
    with pytest.raises(BadData, match="a row of rounds is not what was written"):
        Reader(old.run_dir)
    assert old.journal.read_bytes() == before


@pytest.mark.parametrize("name", ["v1"])
def test_what_fails_in_the_midst_leaves_the_version_that_was(
    old: OldRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("edgeflock.server.journal.schema.STEPS", (*[lambda connection: None] * 3, fail))
        with pytest.raises(CorruptCheckpoint, match="disk is full"):
            connect(old.journal)
    with contextlib.closing(sqlite3.connect(old.journal)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    Journal(old.journal).close()


@pytest.mark.parametrize("name", ["v6"])
def test_a_column_that_the_catalogue_got_since_is_added(old: OldRun) -> None:
    with contextlib.closing(connect(old.journal)) as connection:
        connection.execute("ALTER TABLE costs DROP COLUMN method_pass_flops")
    with contextlib.closing(read_only(old.journal)) as copy:
        assert copy.execute("SELECT method_pass_flops FROM costs LIMIT 1").fetchone() == (None,)
    with contextlib.closing(connect(old.journal)) as connection:
        assert connection.execute("SELECT method_pass_flops FROM costs LIMIT 1").fetchone() == (None,)


# ---------------------------------------------------------------------------------------- run.toml


@every_version
def test_a_run_is_described_as_it_was_begun(old: OldRun) -> None:
    config = combine({"run_dir": old.run_dir})
    assert (config.clients, config.seed, config.model) == (2, 5, "linear")
    assert config.set.keys() == {field for field in load(config.method).params.__dataclass_fields__}


@pytest.mark.parametrize("name", ["v6-fedtrip"])
def test_options_that_came_later_do_what_was_done_without_them(old: OldRun) -> None:
    options = from_toml(old.run_dir / "run.toml").set
    assert (options["push_limit"], options["first"], options["mu_per"]) == ("0.0", "none", "step")


@pytest.mark.parametrize("name", ["v8-simulated"])
def test_the_clock_of_before_is_that_of_the_run_and_draws_as_it_did(old: OldRun) -> None:
    config = combine({"run_dir": old.run_dir})
    assert config.clock == "simulated:c=0.013,b=0.1316,draws=round"
    assert "clock" not in config.set
    assert combine({"run_dir": old.run_dir, "clock": config.clock}) == config
    with pytest.raises(UsageError, match="holds another run, different in --clock"):
        combine({"run_dir": old.run_dir, "clock": "simulated"})


@pytest.mark.parametrize("name", ["v8-simulated"])
def test_the_journal_knows_the_clock_of_before_where_run_toml_is_lost(old: OldRun) -> None:
    config = combine({"run_dir": old.run_dir})
    (old.run_dir / "run.toml").unlink()
    words = r"different in clock \(simulated:c=0\.013,b=0\.1316,draws=round there, real here\)"
    with (
        pytest.raises(UsageError, match=words),
        taken_up(build(resolve(replace(config, clock="real"))), old.run_dir),
    ):
        pass


FIRST = json.loads((Path(__file__).resolve().parents[1] / "data" / "first_options.json").read_text("utf-8"))


@pytest.mark.parametrize("method", FIRST)
def test_no_option_of_a_method_keeps_an_old_run_from_going_on(method: str, tmp_path: Path) -> None:
    """Of those that it had at first none is gone; the others have a value for runs without them."""
    begun = ServerConfig(method=method, set=dict.fromkeys(FIRST[method], "0"))
    path = tmp_path / "run.toml"
    path.write_text(to_toml(begun), "utf-8")
    assert from_toml(path).set.keys() == set(load(method).params.__dataclass_fields__)


@pytest.mark.parametrize(
    ("method", "given", "missing"),
    [
        ("fedadm", {}, {"batches"}),
        ("fedadm", {"batches": "equal"}, set()),
        ("fedtrip", {}, {"first", "mu_per"}),
        ("fedtrip", {"mu_per": "epoch", "push_limit": "0"}, {"first"}),  # 1 is the default: 0 must be told
        ("fedavg", {}, set()),
    ],
)
def test_clients_are_told_of_later_options_where_they_do_something(
    method: str, given: dict[str, str], missing: set[str]
) -> None:
    """A client that has none of them takes part in what it can do; whatever is missing has its default."""
    config = resolve(ServerConfig(method=method, set=given))
    told, params = options_told(config), load(method).params
    assert config.set.keys() - told.keys() == missing
    assert parse(params, told) == parse(params, config.set)


@every_version
def test_half_of_a_description_is_refused(old: OldRun) -> None:
    path = old.run_dir / "run.toml"
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        with pytest.raises(UsageError):
            from_toml(path)
