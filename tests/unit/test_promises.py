"""The book of promises: cases are summed, parts of a run are put together, the page is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promises import NAME, Book, Trials, publish


def test_a_test_that_tries_many_counts_each_and_the_worst_figure_stays() -> None:
    book = Book()
    for size in (3, 5):
        properties: list[tuple[str, object]] = [(NAME, "R2"), ("MiB", float(size))]
        trials = Trials(properties)
        for number in range(size):
            with trials(number):
                pass
        book.note("passed", properties)
    assert "| R2 | 8 | 8 | MiB: 5 |" in book.table()


def test_what_fails_names_what_replays_it_and_is_not_counted_as_passed() -> None:
    properties: list[tuple[str, object]] = [(NAME, "R1")]
    trials = Trials(properties)
    with trials("seed 1"):
        pass
    with pytest.raises(AssertionError) as failed, trials("seed 2"):
        raise AssertionError
    assert failed.value.__notes__ == ["replayed by: seed 2"]
    book = Book()
    book.note("failed", properties)
    book.note("skipped", [(NAME, "R1")])
    assert "| R1 | 2 | 1 |  |" in book.table()
    assert "0 of 1 tests passed, 1 skipped" in book.text()


def test_parts_of_a_run_are_put_together_on_the_page(tmp_path: Path) -> None:
    kept, page = tmp_path / "build" / "book.json", tmp_path / "page.md"
    page.write_text("# A\n<!-- promises -->\nold\n<!-- /promises -->\n# B\n", "utf-8")
    for name in ("R1", "R15"):
        book = Book(command="make faults", date="1 May 2026", seconds=60.0)
        book.note("passed", [(NAME, name)])
        if kept.exists():
            book.add(kept)
        book.save(kept)
    for _ in range(2):
        publish(kept, page)
    text = page.read_text("utf-8")
    assert text.startswith("# A\n<!-- promises -->\n1 May 2026, `make faults` on ")
    assert text.endswith("| R1 | 1 | 1 |  |\n| R15 | 1 | 1 |  |\n<!-- /promises -->\n# B\n")
    assert "2 minutes: 2 of 2 tests passed" in text
