"""Which tests reach a line: what coverage saw of each, in the process of the tests.

As a plugin of pytest (`-p support.mutants.reach`, with MUTANTS_REACH=FOLDER) it writes it down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

WINGS = ("common", "server", "client", "lab")


class Recorder:
    """Writes down what each test of this process reaches, and how long it takes."""

    def __init__(self, folder: Path, root: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._book = folder / f"seconds.{os.getpid()}.json"
        self._seconds: dict[str, float] = {}
        sources = [str(root / wing) for wing in WINGS]
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"reach.{os.getpid()}"), source=sources, config_file=False, messages=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._seconds[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        self._book.write_text(json.dumps(self._seconds), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if (folder := os.environ.get("MUTANTS_REACH")) and not distributes:  # else its workers run the tests
        config.pluginmanager.register(Recorder(Path(folder), config.rootpath))


class Reach:
    """What was written down, by file and line."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._root = root
        self._data = coverage.CoverageData(str(folder / "reach"))
        for part in folder.glob("reach.*"):
            other = coverage.CoverageData(str(part))
            other.read()
            self._data.update(other)
        self.seconds: dict[str, float] = {}
        for book in folder.glob("seconds.*.json"):
            self.seconds |= json.loads(book.read_text("utf-8"))

    def tests(self, path: str, line: int) -> list[str]:
        """Return the tests that reach a line, the quickest first; of one that imports run, its module's."""
        by_line = self._data.contexts_by_lineno(str(self._root / path))
        found = set(by_line.get(line, [])) - {""} or {test for tests in by_line.values() for test in tests}
        return sorted(found & self.seconds.keys(), key=lambda test: (self.seconds[test], test))
