"""One flock of processes per test, and the run that nothing disturbed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from support import processes, promises
from support.processes import Flock

Figure = Callable[[str, float], None]  # what it is, how much: the report shows the worst

RUN = ("--clients=3", "--rounds=40", "--seed=7", "--deadline=60")


@pytest.fixture
def flock(tmp_path: Path) -> Iterator[Flock]:
    with processes.flock(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of RUN."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("undisturbed"), RUN, ("c0", "c1", "c2"))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Note a measured figure of the promise at hand; more is worse."""

    def note(what: str, value: float) -> None:
        request.node.user_properties.append((what, value))

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker("promise")
    if marker is not None and report.when == "call":
        promises.BOOK.note(marker.args, report.outcome, item.user_properties)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if promises.BOOK.entries:
        terminalreporter.section("promises")
        terminalreporter.write(promises.BOOK.table())
