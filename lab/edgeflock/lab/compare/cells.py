"""The cells of a grid as processes, several at a time, watched to the end: runs here, or fleet servers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edgeflock.common.command import flags
from edgeflock.lab.children import Child, Children, environment_without
from edgeflock.lab.grid.grid import Cell, run_dir
from edgeflock.lab.nursery import Nursery
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.reader import Feed

LOGS = "logs"  # of the programs: not beside a run's directory, and not in it, since a refused run leaves none
_INTERVAL_S = 0.2
GRACE_S = 10.0  # above what a run takes to end its own processes


@dataclass
class LivingCell:
    """A cell that runs."""

    cell: Cell
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

    def committed(self, round: int) -> None:
        """Note its last round."""
        self.round = round
        if self.seen is None and self.round:
            self.seen = (self.round, self.seconds)


@dataclass(frozen=True)
class Lane:
    """Where one cell at a time is held: by which of our programs, and with which options of the place."""

    program: str = "fl-lab"
    place: Mapping[str, Any] = field(default_factory=dict)

    def words(self, out: Path, cell: Cell) -> list[str]:
        """Return the program's arguments that run, or go on with, a cell."""
        if self.program == "fl-lab":
            return command_line(out, cell)
        given = {**cell.given, **self.place, "run_dir": run_dir(out, cell), "log_format": "json"}
        return flags.to_arguments(ServerConfig, given)


@dataclass
class _Started:
    """A cell that runs as a process of this machine."""

    living: LivingCell
    lane: Lane
    child: Child
    feed: Feed

    def look(self) -> None:
        committed = [event for event in self.feed.read() if event.name == "round_committed"]
        self.living.committed(int(committed[-1].number("round") or 0) if committed else self.living.round)


@dataclass(frozen=True)
class EndedCell:
    """A cell whose processes have ended."""

    cell: Cell
    seconds: float
    failure: str  # a sentence, empty if it went well


def command_line(out: Path, cell: Cell) -> list[str]:
    """Return the arguments of fl-lab that run, or go on with, a cell."""
    return [*anywhere(cell), *flags.to_arguments(ServerConfig, {"run_dir": run_dir(out, cell)})]


def anywhere(cell: Cell) -> list[str]:
    """Return the arguments of fl-lab that run a cell in whatever directory is named beside them."""
    return ["run", *flags.to_arguments(ServerConfig, cell.given), *flags.to_arguments(LabConfig, cell.lab)]


Watch = Callable[[Sequence[LivingCell]], None]


class Farm(Protocol):
    """Where cells run."""

    def require(self, cells: Sequence[Cell], out: Path) -> None:
        """Refuse cells that cannot run there, before the first one is started."""
        ...

    def alone(self, cell: Cell, out: Path) -> list[str]:
        """Return the command that runs a cell by itself."""
        ...

    def grow(
        self, cells: Sequence[Cell], out: Path, jobs: int, watch: Watch, say: Callable[[str], None]
    ) -> Generator[EndedCell]:
        """Run cells, so many at a time, and yield each as it ends; in between `watch` is called.

        What people should know meanwhile is said. Leaving the iteration early ends the processes.
        """
        ...


@dataclass(frozen=True)
class Here:
    """This machine: runs with their own clients, or servers at addresses that a fleet's devices dial."""

    lanes: Sequence[Lane] = ()  # without any, so many runs as are asked for

    def require(self, cells: Sequence[Cell], out: Path) -> None:
        require_data(cells)

    def alone(self, cell: Cell, out: Path) -> list[str]:
        lane = next(iter(self.lanes), Lane())
        return [lane.program, *lane.words(out, cell)]

    def grow(
        self, cells: Sequence[Cell], out: Path, jobs: int, watch: Watch, say: Callable[[str], None]
    ) -> Generator[EndedCell]:
        return run_cells(cells, out, self.lanes or [Lane()] * jobs, watch)


def require_data(cells: Sequence[Cell]) -> None:
    """Refuse a grid whose data are not there, before the first cell is started."""
    from edgeflock.common.datasets.kit import registry as datasets

    for name, root in data_of(cells):
        datasets.load(name, root)


def data_of(cells: Sequence[Cell]) -> set[tuple[str, Path | None]]:
    """Return the data sets that cells are trained on, each with its root."""
    every = {(cell.config.dataset, cell.config.data_root) for cell in cells}
    return {(name, root) for name, root in every if name is not None}


def run_cells(cells: Sequence[Cell], out: Path, lanes: Sequence[Lane], watch: Watch) -> Generator[EndedCell]:
    """Run cells, one at a time in each lane, and yield each as it ends; `watch` is called in between.

    Leaving the iteration early ends the processes.
    """
    patience = max((cell.config.drain_timeout for cell in cells), default=0.0) + GRACE_S
    waiting, free, living = deque(cells), deque(lanes), list[_Started]()
    nursery = Nursery.open(lanes[0].program) if cells else None  # all cells share what it has imported
    with Children(patience_s=patience, nursery=nursery) as children:
        while waiting or living:
            while waiting and free:
                living.append(_start(children, out, waiting.popleft(), free.popleft()))
            for one in [one for one in living if one.child.code is not None]:
                living.remove(one)
                free.append(one.lane)
                children.all.remove(one.child)
                one.feed.close()
                yield EndedCell(one.living.cell, one.living.seconds, _failure(one.child))
            for one in living:
                one.look()
            watch([one.living for one in living])
            time.sleep(_INTERVAL_S)


def _start(children: Children, out: Path, cell: Cell, lane: Lane) -> _Started:
    folder, log = run_dir(out, cell), out / LOGS / f"{cell.folder}.log"
    for place in (folder.parent, log.parent):
        place.mkdir(parents=True, exist_ok=True)
    child = children.begin(
        cell.name,
        lane.program,
        lane.words(out, cell),
        log,
        {
            name: value
            for name, value in environment_without("FL_SERVER_").items()
            if not name.startswith("FL_LAB_")
        },
    )
    return _Started(LivingCell(cell), lane, child, Feed(folder))


def _failure(child: Child) -> str:
    if child.code == 0:
        return ""
    return (child.refusal() if child.code in (1, 2) else "") or child.ending()
