"""One flock of processes per test, and the run that nothing disturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import damage, processes, promises
from support.played_run import Played, play
from support.processes import Flock
from support.promises import Book, Trials

Figure = Callable[[str, float], None]  # what it is, how much: the report shows the worst

_BEGAN = time.monotonic()
BOOK = Book(command=os.environ.get("PROMISES_COMMAND", "pytest tests/faults"))
RUN = ("--clients=3", "--rounds=40", "--seed=7", "--deadline=60")


@pytest.fixture
def flock(tmp_path: Path) -> Iterator[Flock]:
    with processes.flock(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of RUN."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("undisturbed"), RUN, ("c0", "c1", "c2"))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A run at rest, to be copied and damaged."""
    return play(tmp_path_factory.mktemp("run"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which many starts are quick."""
    with damage.quick_folder(tmp_path) as quick:
        yield quick


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Note a measured figure of the promise at hand; more is worse."""

    def note(what: str, value: float) -> None:
        request.node.user_properties.append((what, value))

    return note


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Trials:
    """Count what a test tries: `with trials("seed 7"): ...`; what fails names what replays it."""
    return Trials(request.node.user_properties)


@pytest.fixture(autouse=True)
def _promises(request: pytest.FixtureRequest) -> None:
    """Let the report know whose case this is, also when another process writes it down."""
    for marker in request.node.iter_markers("promise"):
        request.node.user_properties.extend((promises.NAME, name) for name in marker.args)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or (report.when == "setup" and not report.passed):
        BOOK.note(report.outcome, report.user_properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the table, with what an earlier part of the same run has found, and keep it."""
    if hasattr(
        terminalreporter.config, "workerinput"
    ):  # one of several: its tests are noted where they are shown
        return
    BOOK.seconds += time.monotonic() - _BEGAN
    BOOK.date = time.strftime("%-d %B %Y")
    kept = Path(path) if (path := os.environ.get("PROMISES_BOOK")) else None
    if kept and kept.exists():
        BOOK.add(kept)
    if kept:
        BOOK.save(kept)
    if BOOK.entries:
        terminalreporter.section("promises")
        terminalreporter.write(BOOK.text())
