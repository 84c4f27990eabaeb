"""The book of promises: for each, how many cases were tried, how many passed, and the worst figures."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

NAME = "promise"  # of the property that says whose case a test is
TRIED, PASSED = "cases tried", "cases passed"  # of a test that tries several
_OUTCOMES = ("passed", "failed", "skipped")
_MARK = "promises -->"  # around the table in the documentation


class Trials:
    """What one test tries, one after the other; what fails says which of them replays it."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties
        self._place = len(properties)
        properties += [(TRIED, 0), (PASSED, 0)]
        self.tried = self.passed = 0

    @contextlib.contextmanager
    def __call__(self, what: object) -> Iterator[None]:
        self.tried += 1
        self._write()
        try:
            yield
        except BaseException as error:
            error.add_note(f"replayed by: {what}")
            raise
        self.passed += 1
        self._write()

    def _write(self) -> None:
        self._properties[self._place : self._place + 2] = [(TRIED, self.tried), (PASSED, self.passed)]


@dataclass
class Entry:
    """One promise."""

    tried: int = 0
    passed: int = 0
    worst: dict[str, float] = field(default_factory=dict)

    def add(self, other: Entry) -> None:
        self.tried += other.tried
        self.passed += other.passed
        for what, value in other.worst.items():
            self.worst[what] = max(value, self.worst.get(what, float("-inf")))


@dataclass
class Book:
    """What tests have found, and how they were asked for."""

    entries: dict[str, Entry] = field(default_factory=dict)
    tests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_OUTCOMES, 0))
    seconds: float = 0.0
    command: str = "pytest tests/faults"
    date: str = ""

    def note(self, outcome: str, properties: Iterable[tuple[str, object]]) -> None:
        """Add one test: its promises, cases and figures; one that was skipped is none."""
        self.tests[outcome] += 1
        found = list(properties)
        numbers = {what: float(value) for what, value in found if isinstance(value, (int, float))}
        tried, passed = int(numbers.pop(TRIED, 0)), int(numbers.pop(PASSED, 0))
        if not tried:
            tried, passed = 1, 1
        if outcome != "passed":
            passed = min(passed, tried - 1)
        for promise in [str(value) for name, value in found if name == NAME and outcome != "skipped"]:
            self.entries.setdefault(promise, Entry()).add(Entry(tried, passed, numbers))

    def add(self, path: Path) -> None:
        """Add what another part of the same run has written down."""
        kept = json.loads(path.read_text("utf-8"))
        for name, entry in kept["entries"].items():
            self.entries.setdefault(name, Entry()).add(Entry(**entry))
        for outcome, count in kept["tests"].items():
            self.tests[outcome] += count
        self.seconds += kept["seconds"]
        self.command, self.date = kept["command"], kept["date"]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), "utf-8")

    def text(self) -> str:
        """Return how the tests were run, and the book as a Markdown table."""
        ran = self.tests["passed"] + self.tests["failed"]
        skipped = f", {self.tests['skipped']} skipped" if self.tests["skipped"] else ""
        return (
            f"{self.date}, `{self.command}` on {os.cpu_count()} cores, {self.seconds / 60:.0f} minutes: "
            f"{self.tests['passed']} of {ran} tests passed{skipped}.\n\n{self.table()}"
        )

    def table(self) -> str:
        lines = ["| promise | cases | passed | worst figures |", "| --- | --- | --- | --- |"]
        for name in sorted(self.entries, key=_number):
            entry = self.entries[name]
            worst = "; ".join(f"{what}: {value:.4g}" for what, value in sorted(entry.worst.items()))
            lines.append(f"| {name} | {entry.tried} | {entry.passed} | {worst} |")
        return "\n".join(lines) + "\n"


def _number(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


def publish(kept: Path, page: Path) -> None:
    """Put a book that was saved into a page of the documentation."""
    book = Book()
    book.add(kept)
    before, _, rest = page.read_text("utf-8").partition(f"<!-- {_MARK}\n")
    _, _, after = rest.partition(f"<!-- /{_MARK}\n")
    page.write_text(f"{before}<!-- {_MARK}\n{book.text()}<!-- /{_MARK}\n{after}", "utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]))
