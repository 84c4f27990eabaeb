"""The dashboard of a long run: with a page open, its process does not grow with the rounds."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from edgeflock.server.journal.events import write_event
from faults.conftest import Figure
from support.growth import grown
from support.processes import LIMIT_S, Flock, until
from support.told_run import COST, insert, told_run, writing

NAMES = [f"c{number}" for number in range(8)]
SECONDS = ("select_s", "open_s", "fold_s", "commit_s", "evaluate_s")


def go_on(run_dir: Path, first: int, last: int) -> None:
    """Write rounds as a server does, with their events."""
    with writing(run_dir) as journal:
        for round in range(first, last + 1):
            key = {"epoch": 0, "round": round}
            insert(journal, "rounds", {**key, "cohort": json.dumps(list(range(8))), "committed": 1})
            seats = [{**key, "seat": seat} for seat in range(8)]
            insert(journal, "outcomes", *({**seat, "digest": b"", "verdict": "counted"} for seat in seats))
            insert(journal, "costs", *({**seat, **COST} for seat in seats))
            insert(journal, "round_costs", *({**key, "name": name, "value": 0.125} for name in SECONDS))
            told = {"counted": 8, "loss": 1.0 / round, "bytes_up": 7200, "bytes_down": 8000, "seconds": 0.625}
            write_event(journal, "round_opened", {"round": round, "cohort": NAMES})
            write_event(journal, "round_committed", {"round": round, "not_counted": {}, **told})
            write_event(
                journal, "evaluated", {"round": round, "accuracy": 0.5, "loss": 1.0, "model": "global"}
            )


class Viewer(threading.Thread):
    """An open page, as far as the dashboard knows: what it was sent last."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.newest = url, 0

    def await_round(self, number: int) -> None:
        until(lambda: self.newest >= number or None, lambda: f"round {self.newest} is seen, not {number}")

    def run(self) -> None:
        for told in self.pictures():
            self.newest = max([self.newest, *told.get("rounds", {}).get("round", [])])

    def pictures(self) -> Iterator[dict[str, dict[str, list[int]]]]:
        with urllib.request.urlopen(f"{self.url}api/stream", timeout=LIMIT_S) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.long
@pytest.mark.promise("R11")
@pytest.mark.timeout(900)
def test_with_a_page_open_it_is_as_large_after_20_000_rounds_as_after_2000(
    flock: Flock, figure: Figure
) -> None:
    told_run(flock.run_dir, rounds=1, names=NAMES, ended=False)
    lab = flock.start("fl-lab", "dashboard", str(flock.run_dir), "--dashboard=127.0.0.1:0")
    url = until(lambda: re.search(r"http://\S+/", lab.text), lambda: lab.text).group()
    (process,) = psutil.Process(lab.process.pid).children()
    viewer, sizes = Viewer(url), list[tuple[float, float]]()
    viewer.start()
    for last in range(500, 20_001, 500):
        go_on(flock.run_dir, max(2, last - 499), last)
        viewer.await_round(last)
        sizes.append((last, process.memory_info().rss / 2**20))
    more = grown(sizes, 2000, 20_000)
    figure("dashboard: more MiB from round 2000 to 20000", more)
    assert more < 1, sizes
