"""The cells of a grid on the machines of a Ray cluster: each an errand whose run directory comes home."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import click

from edgeflock.common.command.settings_file import value_text
from edgeflock.lab.cluster import parcel, probe
from edgeflock.lab.cluster.board import Notice
from edgeflock.lab.cluster.dispatch import Dispatch, Need
from edgeflock.lab.cluster.errand import Errand, Homecoming, group_of, own_place, taken_along
from edgeflock.lab.cluster.joining import Cluster, slots
from edgeflock.lab.cluster.probe import SIGN, Question
from edgeflock.lab.compare.cells import (
    GRACE_S,
    LOGS,
    EndedCell,
    LivingCell,
    Watch,
    anywhere,
    command_line,
    data_of,
)
from edgeflock.lab.findings.results import HOST
from edgeflock.lab.grid.grid import Cell, run_dir
from edgeflock.server.files.run_dir import remove_small, write_small


@dataclass(frozen=True)
class CellSize:
    """What one cell is given of a node."""

    cpus: float | None = None  # None: one for each of its processes
    gpus: float = 0.0
    memory: int = 0  # bytes


@dataclass
class Away:
    """A cluster as a place where cells run."""

    cluster: Cluster
    size: CellSize
    shared: bool  # all nodes see the directory of the comparison, and runs lie there at once
    living: dict[str, LivingCell] = field(default_factory=dict)

    def room(self, cells: Sequence[Cell]) -> int:
        """Return how many of the largest cells it holds at a time; refuse those that it never can."""
        most = max((self._need(cell).cpus for cell in cells), default=1.0)
        return slots(self.cluster.nodes(), most, self.size.gpus, self.size.memory)

    def _need(self, cell: Cell) -> Need:
        """Return what a cell takes: a core for each process, unless no node has so many."""
        processes = 0 if cell.config.central else cell.lab.get("processes") or cell.config.clients
        largest = max((node.resources.get("CPU", 0.0) for node in self.cluster.nodes()), default=1.0)
        usual = max(1.0, min(1.0 + processes, largest))
        return Need(self.size.cpus or usual, self.size.gpus, self.size.memory)

    def alone(self, cell: Cell, out: Path) -> list[str]:
        return ["fl-lab", *command_line(out, cell)]

    def require(self, cells: Sequence[Cell], out: Path) -> None:
        sign = secrets.token_hex(8) if self.shared else ""
        place = out.absolute() if self.shared else own_place(group_of(out))
        data = tuple(sorted(data_of([cell.anywhere() for cell in cells]), key=str))
        if self.shared:
            out.mkdir(parents=True, exist_ok=True)
            write_small(out / SIGN, sign)
        try:
            found = self.cluster.probe(Question(data, place, sign=sign))
        finally:
            remove_small(out / SIGN)
        for words in probe.judge(self.cluster.here, found):
            click.echo(words, err=True)

    def grow(
        self, cells: Sequence[Cell], out: Path, jobs: int, watch: Watch, say: Callable[[str], None]
    ) -> Generator[EndedCell]:
        by_key = {run_dir(out, cell).name: cell for cell in cells}
        dispatch = Dispatch(self.cluster, say)

        def look(entries: Mapping[str, Notice]) -> None:
            self.living = {key: self.living.get(key) or LivingCell(by_key[key]) for key in entries}
            for key, entry in entries.items():
                self.living[key].committed(entry.round)
            watch(list(self.living.values()))

        errands = [(self._errand(cell, out), self._need(cell)) for cell in cells]
        with closing(dispatch.run(errands, jobs, look)) as homecomings:
            for home in homecomings:
                cell = by_key[home.key]
                self._bring_home(home, cell, out)
                if home.parcel:
                    dispatch.forget(home)
                yield EndedCell(cell, home.seconds, home.failure)

    def _errand(self, cell: Cell, out: Path) -> Errand:
        return Errand(
            key=run_dir(out, cell).name,
            name=cell.name,
            arguments=tuple(anywhere(cell.anywhere())),
            shared=str(out.absolute()) if self.shared else "",
            group=group_of(out),
            typed_in=str(Path.cwd()),
            environ=taken_along(),
            patience_s=cell.config.drain_timeout + GRACE_S,
            home=self.cluster.here,
        )

    def _bring_home(self, home: Homecoming, cell: Cell, out: Path) -> None:
        folder = run_dir(out, cell)
        if home.parcel:
            parcel.unpack(home.parcel, folder)
        if home.log and not self.shared:
            (out / LOGS).mkdir(parents=True, exist_ok=True)
            (out / LOGS / f"{cell.folder}.log").write_bytes(home.log)
        if home.node and folder.is_dir():
            write_small(folder / HOST, f"node = {value_text(home.node)}\ncpu = {value_text(home.cpu)}\n")
