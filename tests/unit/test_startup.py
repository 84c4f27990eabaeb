"""Before a run is served: whether it is over, goes on or is another one, and what a full disk holds up."""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from edgeflock.common.errors import CorruptCheckpoint, JournalBroken, UsageError
from edgeflock.common.verdict import Verdict
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.decisions import Ended, EndingKind, Outcome, Seated
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.files.run_toml import to_toml
from edgeflock.server.journal import costs
from edgeflock.server.journal import decisions as records
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.schema import connect
from edgeflock.server.start import motion
from edgeflock.server.start.resolve import resolve
from edgeflock.server.start.room import when_there_is_room
from edgeflock.server.start.startup import already_over, asks_more, build, clear, taken_up

CONFIG = resolve(ServerConfig(clients=2, rounds=3, model="linear", budget={"time": "1h"}))
FULL = OSError(errno.ENOSPC, "No space left on device")


def ended(run_dir: Path, kind: EndingKind, *, heard: bool = True, config: ServerConfig = CONFIG) -> None:
    """Make a run that ended so in its third round, of which its clients have heard or not."""
    (run_dir / "run.toml").write_text(to_toml(config))
    with contextlib.closing(Journal(run_dir / "journal.sqlite")) as journal:
        journal.name(run_id="a", epoch="0").result()
        journal.decide([Seated(((0, "c0"), (1, "c1"))), Ended(kind, "so it is", 3)]).result()
        for seat in (0, 1) if heard else (0,):
            journal.parted(seat).result()
    with contextlib.closing(connect(run_dir / "journal.sqlite")) as connection:
        rows = ", ".join(f"(0, {number}, '[]', 1)" for number in range(4))
        connection.execute(f"INSERT INTO rounds (epoch, round, cohort, committed) VALUES {rows}")


@pytest.mark.parametrize("kind", [EndingKind.COMPLETED, EndingKind.STOPPED])
def test_a_run_that_has_ended_is_over_if_all_have_heard_it_or_had_their_time_to(
    tmp_path: Path, kind: EndingKind
) -> None:
    ended(tmp_path, kind, heard=False)
    assert already_over(tmp_path, CONFIG) is None
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.farewell().result()
    assert already_over(tmp_path, CONFIG) == Ended(kind, "so it is", 3)


def test_a_failed_run_is_tried_again_and_where_there_is_none_nothing_is_over(tmp_path: Path) -> None:
    assert already_over(tmp_path, CONFIG) is None
    ended(tmp_path, EndingKind.FAILED)
    assert already_over(tmp_path, CONFIG) is None


@pytest.mark.parametrize(
    ("kind", "change", "goes_on"),
    [
        (EndingKind.COMPLETED, {"rounds": 4}, True),
        (EndingKind.STOPPED, {"rounds": 4}, False),
        (EndingKind.COMPLETED, {"rounds": 2}, False),
        (EndingKind.COMPLETED, {"budget": {"time": "2h"}}, False),  # but all rounds are done
        (EndingKind.COMPLETED, {"deadline": 7.0}, False),
    ],
)
def test_a_completed_run_goes_on_if_more_rounds_are_asked_for(
    tmp_path: Path, kind: EndingKind, change: dict[str, Any], goes_on: bool
) -> None:
    ended(tmp_path, kind)
    assert (already_over(tmp_path, replace(CONFIG, **change)) is None) == goes_on


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({}, False),
        ({"rounds": 4}, True),
        ({"rounds": 2}, False),
        ({"budget": {"time": "2h"}}, True),
        ({"budget": {}}, True),
        ({"budget": {"time": "30m"}}, False),
        ({"target": {"accuracy": "0.95"}}, True),
        ({"target": {}}, True),
        ({"target": {"accuracy": "0.5"}}, False),
    ],
)
def test_more_is_asked_of_a_run_by_rounds_a_budget_or_a_target(
    tmp_path: Path, change: dict[str, Any], more: bool
) -> None:
    before = replace(CONFIG, target={"accuracy": "0.9"})
    assert not asks_more(tmp_path, before), "there was none"
    (tmp_path / "run.toml").write_text(to_toml(before))
    assert asks_more(tmp_path, replace(before, **change)) == more


def test_what_a_run_that_is_over_needs_no_more_is_removed(tmp_path: Path) -> None:
    (tmp_path / "spool" / "000001").mkdir(parents=True)
    for name in ("control", "control.sock", "run.toml"):
        (tmp_path / name).touch()
    clear(tmp_path)
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_a_run_is_taken_up_as_the_run_that_it_is(tmp_path: Path) -> None:
    """Clients are told its id and its epoch: an update that waits from before it was raised is no more."""
    built = build(CONFIG)
    with taken_up(built, tmp_path) as parts:
        named = parts.run.run_id
        assert (len(named), parts.run.epoch, parts.resumed.finished) == (32, 0, False)
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.raise_epoch(0, 0).result()
    with taken_up(built, tmp_path) as parts:
        assert (parts.run.run_id, parts.run.epoch) == (named, 1)
    shutil.copy(tmp_path / "run.toml", tmp_path / "kept.toml")
    other = replace(CONFIG, seed=9)
    words = r"journal\.sqlite is of another run, different in seed \(0 there, 9 here\): give its options"
    (tmp_path / "run.toml").unlink()  # which would have said so before
    with pytest.raises(UsageError, match=words), taken_up(replace(built, config=other), tmp_path):
        pass


def test_of_each_clients_last_rounds_more_may_be_stated_to_the_next_life(tmp_path: Path) -> None:
    """What it had stated by then is charged already; of a round that it had no part in nothing is taken."""
    with contextlib.closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.decide([Seated(((0, "c0"), (1, "c1")))]).result()
        with contextlib.closing(connect(tmp_path / "journal.sqlite")) as connection:
            for round, seats in ((1, (0, 1)), (2, (0,))):
                records.write_outcomes(
                    connection, 0, round, [Outcome(seat, b"", Verdict.COUNTED) for seat in seats]
                )
                costs.write_rows(connection, 0, {(round, seat): {"cpu_s": 2.0} for seat in (0, 1)})
        resumed: Any = SimpleNamespace(seats=((0, "c0"), (1, "c1")), used={"cpu": 8.0})
        parts: Any = SimpleNamespace(
            built=SimpleNamespace(config=replace(CONFIG, budget={"cpu": "1h"})),
            resumed=resumed,
            journal=journal,
        )
        budget = motion._budget(parts, Verdicts(journal, 2))
    assert budget.limits == {"cpu": 3600.0}
    taken = [budget.correct(round, seat, {"cpu_s": 2.5}) for round in (1, 2) for seat in (0, 1)]
    assert (taken, budget.used()["cpu"]) == ([True, True, True, False], 8.0 + 3 * 0.5)


# -------------------------------------------------------------------------------------- a full disk


class Work:
    """Fails so often before it is done."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def test_a_start_waits_for_room_and_for_a_lock_and_says_so_once(tmp_path: Path, slept: list[float]) -> None:
    work = Work(FULL, JournalBroken(OSError("database is locked")), CorruptCheckpoint("database is locked"))
    with capture_logs() as logs:
        assert when_there_is_room(tmp_path, work) == "done"
    assert [line["event"] for line in logs] == ["start_waits", "start_goes_on"]
    assert logs[0]["reason"].startswith("no space left on the disk ([Errno 28]")
    assert slept == [2.0] * 3


def test_a_start_without_trouble_says_nothing(tmp_path: Path, slept: list[float]) -> None:
    with capture_logs() as logs:
        assert when_there_is_room(tmp_path, Work()) == "done"
    assert (logs, slept) == ([], [])


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "I/O error"),
        UsageError("--clients is 0"),
        CorruptCheckpoint("round 1 is damaged"),
    ],
    ids=["disk", "usage", "damage"],
)
def test_what_does_not_pass_is_raised_at_once(tmp_path: Path, slept: list[float], error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        when_there_is_room(tmp_path, Work(error))
    assert (caught.value, slept) == (error, [])


def test_an_error_of_sqlite_on_a_full_disk_is_that(
    tmp_path: Path, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file can be made there, but not a little be written to it."""

    class Tried(io.BytesIO):
        def write(self, data: Any) -> int:
            assert len(data) == 1 << 16
            raise OSError(tried.pop(0), "no")

    tried = [errno.ENOSPC, errno.EIO]
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Tried())
    error = CorruptCheckpoint("disk I/O error")
    with pytest.raises(CorruptCheckpoint):
        when_there_is_room(tmp_path, Work(error, error))
    assert slept == [2.0]
