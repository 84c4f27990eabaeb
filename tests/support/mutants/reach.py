"""Which tests reach a line: what coverage saw of each, in the process of the tests.

As a plugin of pytest (`-p support.mutants.reach`, with MUTANTS_REACH=FOLDER) it writes it down.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Generator
from functools import lru_cache
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
        """Return the tests that reach a line, the quickest first; of one that imports run, which whoever came
        first has reached, its module's; of a module in which nothing else runs, those of who imports it."""
        found = set(self._by_line(path).get(line, [])) if _is_called(self._root / path, line) else set[str]()
        found = self._known(found) or self._known(self._of(path))
        found = found or self._known({test for other in self._importers(path) for test in self._of(other)})
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def _known(self, tests: set[str]) -> set[str]:
        return tests & self.seconds.keys()

    def _by_line(self, path: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(str(self._root / path))

    def _of(self, path: str) -> set[str]:
        """Return who reaches a module when it is called, not only as the first to import it."""
        by_line = self._by_line(path).items()
        return {test for line, tests in by_line if _is_called(self._root / path, line) for test in tests}

    def _importers(self, path: str) -> list[str]:
        name = ".".join(Path(path).with_suffix("").parts[1:])
        words = re.compile(rf"^(from {name} import|import {name})\b", re.MULTILINE)
        files = (file for wing in WINGS for file in (self._root / wing).rglob("*.py"))
        return [str(file.relative_to(self._root)) for file in files if words.search(file.read_text("utf-8"))]


@lru_cache
def _functions(path: Path) -> list[tuple[int, int]]:
    """Return where the bodies of a module's functions begin and end."""
    tree = ast.parse(path.read_text("utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(node.body[0].lineno, node.end_lineno or 0) for node in found]


def _is_called(path: Path, line: int) -> bool:
    """Whether it runs when a function is called, and not when the module is imported."""
    return any(first <= line <= last for first, last in _functions(path))
