"""The book of promises: for each, how many cases were tried, how many passed, and the worst figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

NAME = "promise"  # of the property that says whose case a test is


@dataclass
class Entry:
    """One promise."""

    tried: int = 0
    passed: int = 0
    worst: dict[str, float] = field(default_factory=dict)


class Book:
    """What this process's tests have found."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def note(self, outcome: str, properties: Iterable[tuple[str, object]]) -> None:
        """Add one case: its promises and figures; one that was skipped is none."""
        found = list(properties)
        for promise in [value for name, value in found if name == NAME and outcome != "skipped"]:
            entry = self.entries.setdefault(str(promise), Entry())
            entry.tried += 1
            entry.passed += outcome == "passed"
            for what, value in found:
                if isinstance(value, (int, float)):
                    entry.worst[what] = max(value, entry.worst.get(what, float("-inf")))

    def table(self) -> str:
        """Return the book as a Markdown table."""
        lines = ["| promise | cases | passed | worst figures |", "| --- | --- | --- | --- |"]
        for name in sorted(self.entries, key=_number):
            entry = self.entries[name]
            worst = "; ".join(f"{what}: {value:.4g}" for what, value in entry.worst.items())
            lines.append(f"| {name} | {entry.tried} | {entry.passed} | {worst} |")
        return "\n".join(lines) + "\n"


def _number(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


BOOK = Book()
