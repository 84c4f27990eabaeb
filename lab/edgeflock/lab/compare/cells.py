"""The cells of a grid as processes: each a fl-lab run, several at a time, watched to the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.common.command import flags
from edgeflock.lab.children import Child, Children, environment_without
from edgeflock.lab.grid.grid import Cell, run_dir
from edgeflock.lab.nursery import Nursery
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.reader import Feed

_LOGS = "logs"  # of fl-lab run: not beside a run's directory, and not in it, since a refused run leaves none
_INTERVAL_S = 0.2
_GRACE_S = 10.0  # above what a run takes to end its own processes


@dataclass
class LivingCell:
    """A cell that runs."""

    cell: Cell
    child: Child
    feed: Feed
    begin: float = field(default_factory=time.monotonic)
    round: int = 0  # the last committed one
    seen: tuple[int, float] | None = None  # the first round that was seen to be committed, and when

    @property
    def share(self) -> float:
        """The share of its rounds that are still to come."""
        return 1 - min(1.0, self.round / self.cell.config.rounds)

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.begin

    @property
    def whole(self) -> float | None:
        """How long it takes in all if it goes on at this pace; None while it has none."""
        if self.seen is None or self.round <= self.seen[0]:
            return None
        pace = (self.seconds - self.seen[1]) / (self.round - self.seen[0])
        return self.seconds + pace * (self.cell.config.rounds - self.round)

    def look(self) -> None:
        for event in self.feed.read():
            if event.name == "round_committed":
                self.round = int(event.number("round") or 0)
        if self.seen is None and self.round:
            self.seen = (self.round, self.seconds)


@dataclass(frozen=True)
class EndedCell:
    """A cell whose processes have ended."""

    cell: Cell
    seconds: float
    failure: str  # a sentence, empty if it went well


def command_line(out: Path, cell: Cell) -> list[str]:
    """Return the arguments of fl-lab that run, or go on with, a cell."""
    given = {**cell.given, "run_dir": run_dir(out, cell)}
    return ["run", *flags.to_arguments(ServerConfig, given), *flags.to_arguments(LabConfig, cell.lab)]


def run_cells(
    cells: Sequence[Cell], out: Path, jobs: int, watch: Callable[[Sequence[LivingCell]], None]
) -> Generator[EndedCell]:
    """Run cells, so many at a time, and yield each as it ends; `watch` is called in between.

    Leaving the iteration early ends the processes.
    """
    patience = max((cell.config.drain_timeout for cell in cells), default=0.0) + _GRACE_S
    waiting, living = deque(cells), list[LivingCell]()
    nursery = Nursery.open("fl-lab") if cells else None  # all cells share what it has imported
    with Children(patience_s=patience, nursery=nursery) as children:
        while waiting or living:
            while waiting and len(living) < jobs:
                living.append(_start(children, out, waiting.popleft()))
            for one in [one for one in living if one.child.code is not None]:
                living.remove(one)
                one.feed.close()
                yield EndedCell(one.cell, one.seconds, _failure(one.child))
            for one in living:
                one.look()
            watch(living)
            time.sleep(_INTERVAL_S)


def _start(children: Children, out: Path, cell: Cell) -> LivingCell:
    folder, log = run_dir(out, cell), out / _LOGS / f"{cell.folder}.log"
    for place in (folder.parent, log.parent):
        place.mkdir(parents=True, exist_ok=True)
    child = children.begin(
        cell.name,
        "fl-lab",
        command_line(out, cell),
        log,
        {
            name: value
            for name, value in environment_without("FL_SERVER_").items()
            if not name.startswith("FL_LAB_")
        },
    )
    return LivingCell(cell, child, Feed(folder))


def _failure(child: Child) -> str:
    if child.code == 0:
        return ""
    return (child.refusal() if child.code in (1, 2) else "") or child.ending()
