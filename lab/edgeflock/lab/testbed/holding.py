"""The cells of a testbed held one after the other, resumable: a server for each, the devices stay."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command import flags
from edgeflock.common.command.terminal import Terminal
from edgeflock.common.command.units import counted
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.lab.becoming import program
from edgeflock.lab.children import Child, Children, environment_without
from edgeflock.lab.compare import time_left
from edgeflock.lab.compare.cells import require_data
from edgeflock.lab.compare.comparison import held
from edgeflock.lab.compare.ticker import Ticker, product
from edgeflock.lab.compare.time_left import Ahead, Took
from edgeflock.lab.findings.results import CellResult, gather
from edgeflock.lab.grid import grid_toml
from edgeflock.lab.grid.grid import Cell, run_dir
from edgeflock.lab.history import History, client_rows, read
from edgeflock.lab.nursery import Nursery
from edgeflock.lab.testbed import gauges, laying
from edgeflock.lab.testbed.breakdown import breakdown, setting_of
from edgeflock.lab.testbed.checks import HeldCell
from edgeflock.lab.testbed.gauges import Measures, WorkSpan
from edgeflock.lab.testbed.house import PORT, SERVER_ADDRESS, House, HouseBroken
from edgeflock.lab.testbed.owner import owned
from edgeflock.lab.testbed.plan import TestbedPlan, describe, settings
from edgeflock.lab.testbed.sweep import over
from edgeflock.lab.testbed.telling import tell
from edgeflock.server.config import ServerConfig
from edgeflock.server.console.summary import model_digest
from edgeflock.server.files.run_dir import read_small, write_small
from edgeflock.server.journal.reader import Feed

_MEASURES, _AGAIN, _SWEEP, _SETTINGS = "measures", "again", "sweep", "house.json"
_INTERVAL_S = 0.1
_SETTLE_S = 0.5  # what is still on its way when a server has ended, and the relay's last word

Watch = Callable[[Cell, int], None]  # told the last committed round, several times a second
Hold = Callable[[Cell, Path, Watch], None]


@dataclass
class Trial:
    """A testbed's cells on their way: those that have finished are kept."""

    plan: TestbedPlan
    out: Path
    took: list[Took] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # by the cell's name

    def run(self) -> None:
        """Hold every cell that is not finished, and some a second time; what fails is noted.

        Raises EdgeflockError with a sentence if the devices cannot be had, or one of them has ended.
        """
        ahead = [(cell, out) for cell, out in self._every() if not _finished(self._result(cell, out))]
        if ahead and not self.plan.devices.external:
            laying.require()
        require_data([cell for cell, _ in ahead])
        with held(self.out, "fl-lab testbed"):
            self._keep_settings()
            try:
                self._hold_all(ahead)
            except (KeyboardInterrupt, HouseBroken):  # said when the living line is gone
                done = f"{len(self.took)} of {counted(len(ahead), 'run')} done"
                click.echo(f"interrupted: {done}, the same command goes on", err=True)
                raise
        for trial in self._on_links().values():
            trial.run()
            self.failures |= trial.failures

    def _hold_all(self, ahead: Sequence[tuple[Cell, Path]]) -> None:
        if not ahead:
            return
        with self._devices(len(ahead)) as hold, closing(Ticker(Terminal(sys.stdout), len(ahead))) as shown:
            for number, (cell, out) in enumerate(ahead):
                self._hold(hold, cell, out, shown, [cell for cell, _ in ahead[number:]], len(ahead))

    def _on_links(self) -> Mapping[str, Trial]:
        """Return what is held for a few rounds on other links, by link."""
        terms = self.plan.sweep
        if not terms.held or self.plan.devices.external:
            return {}
        brief = self.plan.briefly(terms.held)
        return {link: Trial(over(brief, link), self.out / _SWEEP / link) for link in terms.rates}

    def tell(self) -> int:
        """Show what was found, name what failed, and return the exit code."""
        cells = [found for cell in self.plan.grid.cells if (found := self._held(cell)) is not None]
        again = {
            cell.name: model_digest(run_dir(self.out / _AGAIN, cell))
            for cell in self._repeated()
            if _finished(self._result(cell, self.out / _AGAIN))
        }
        links = {
            link: [found for cell in trial.plan.grid.cells if (found := trial._held(cell)) is not None]
            for link, trial in self._on_links().items()
        }
        passed = tell(self.plan, self.out, cells, again, links) if cells else False
        for name, failure in self.failures.items():
            click.echo(f"failed: {name}: {failure}", err=True)
        return 0 if passed and not self.failures else 1

    def _repeated(self) -> Sequence[Cell]:
        return self.plan.grid.cells[: self.plan.check.repeat]

    def _every(self) -> list[tuple[Cell, Path]]:
        """Return all that is to be held: each cell, then those that are held again, and where."""
        repeated = () if self.plan.devices.external else self._repeated()
        return [
            *((cell, self.out) for cell in self.plan.grid.cells),
            *((cell, self.out / _AGAIN) for cell in repeated),
        ]

    def _result(self, cell: Cell, out: Path) -> CellResult:
        return gather(self.plan.grid.only(cell), out, {})[0]

    def _keep_settings(self) -> None:
        """Write down what devices and network are; refuse a directory with others."""
        mine, text = settings(self.plan), read_small(self.out / _SETTINGS)
        before = json.loads(text) if text else mine
        if other := [f"[{name}]" for name in mine if before.get(name) != mine[name]]:
            raise UsageError(
                f"--out {str(self.out)!r} holds runs on another testbed, different in {', '.join(other)}: "
                "give another directory"
            )
        write_small(self.out / _SETTINGS, json.dumps(mine, indent=1) + "\n")
        grid_toml.keep(self.out, self.plan.asked, self.plan.grid)

    @contextmanager
    def _devices(self, ahead: int) -> Iterator[Hold]:
        """Have the devices ready; yield what holds a cell on them."""
        click.echo(describe(self.plan))
        click.echo(f"{product(self.plan.grid.axes)} in {self.out}; {counted(ahead, 'run')} ahead")
        (self.out / "logs").mkdir(exist_ok=True)
        if self.plan.devices.external:
            with Children(nursery=Nursery.open("fl-server")) as children:
                yield lambda cell, out, watch: _serve_others(cell, out, children, watch)
            return
        with owned() as mark, Children() as children:
            house = House(self.plan, self.out, mark, children)
            try:
                house.open()
                click.echo(house.told())
                yield lambda cell, out, watch: hold(cell, out, house, watch)
            finally:
                house.close()

    def _hold(
        self, hold: Hold, cell: Cell, out: Path, shown: Ticker, left: Sequence[Cell], count: int
    ) -> None:
        begin, done = time.monotonic(), count - len(left)

        def watch(cell: Cell, round: int) -> None:
            shown.show(done, f"{cell.name} {round}/{cell.config.rounds}", self._estimate(left))

        try:
            hold(cell, out, watch)
        except HouseBroken:
            raise
        except EdgeflockError as error:
            self.failures[cell.name] = str(error)
        seconds = time.monotonic() - begin
        self.took.append(Took(cell.method, seconds, setting_of(cell)))
        how = (
            f"failed: {self.failures[cell.name]}"
            if cell.name in self.failures
            else f"done in {seconds:.0f} s"
        )
        twice = " once more" if out != self.out else ""
        shown.say(f"{done + 1}/{count}  {cell.name}{twice}  {how}; {self._estimate(left[1:])}")

    def _estimate(self, left: Sequence[Cell]) -> str:
        ahead = [Ahead(cell.method, group=setting_of(cell)) for cell in left]
        return time_left.words(self.took, ahead, 1).partition(" (")[0]

    def _held(self, cell: Cell) -> HeldCell | None:
        """Return all that is known of a cell; None, with its failure noted, if it is not finished."""
        result = self._result(cell, self.out)
        if result.history is None:
            self.failures.setdefault(cell.name, result.failure)
            return None
        target = max(self.plan.grid.targets_of(cell), default=None)
        measure = self.plan.grid.measure_of(cell)
        return HeldCell(
            name=cell.name,
            history=result.history,
            breakdown=breakdown(cell, result.history, target, measure),
            lives=gauges.recall(measures_of(self.out, cell)),
            digest=model_digest(run_dir(self.out, cell)),
            measure=measure,
        )


def _finished(result: CellResult) -> bool:
    return result.outcome is not None


def _serve_others(cell: Cell, out: Path, children: Children, watch: Watch) -> None:
    for round in serve(cell, out, children, {}):
        watch(cell, round)


# ------------------------------------------------------------------------------------------------ one cell


def measures_of(out: Path, cell: Cell) -> Path:
    """Return the file of what was read while a cell was held."""
    return out / _MEASURES / f"{cell.folder}.json"


def hold(cell: Cell, out: Path, house: House, watch: Watch) -> None:
    """Hold a cell to its end on the devices of a house, and keep what was read meanwhile.

    Raises EdgeflockError with a sentence if its server, or a device, ends as it should not.
    """
    begin, medium, book = time.time(), house.medium(), house.cpu_book()
    down, up = house.interfaces()
    place = {"listen": f"{SERVER_ADDRESS}:{PORT}", "insecure": True}
    for round in serve(cell, out, house.children, place, laying.inside(house.server)):
        book.look()
        house.check()
        watch(cell, round)
    time.sleep(_SETTLE_S)
    last_down, last_up = house.interfaces()
    trained, used = gauges.used_while_training(book, spans(read(run_dir(out, cell)), begin))
    gauges.keep(
        measures_of(out, cell),
        Measures(
            begin=begin,
            end=time.time(),
            down=last_down.minus(down),
            up=last_up.minus(up),
            medium=gauges.since(house.medium(), medium),
            training_s=trained,
            training_cpu_s=used,
            mode=house.mode,
        ),
    )


def serve(
    cell: Cell, out: Path, children: Children, place: Mapping[str, Any], inside: Sequence[str] = ()
) -> Iterator[int]:
    """Serve a cell behind a command, and yield its last committed round now and then until it has ended.

    Raises EdgeflockError with the server's sentence if it does not end well.
    """
    folder, log = run_dir(out, cell), out / "logs" / f"{cell.folder}.jsonl"
    for needed in (folder.parent, log.parent):
        needed.mkdir(parents=True, exist_ok=True)
    options = {**cell.given, **place, "run_dir": folder, "log_format": "json"}
    words, environ = flags.to_arguments(ServerConfig, options), environment_without("FL_SERVER_")
    children.patience_s = max(children.patience_s, cell.config.drain_timeout + 5)
    if inside:
        server = children.start("fl-server", [*inside, *program("fl-server"), *words], log, environ)
    else:
        server = children.begin("fl-server", "fl-server", words, log, environ)
    yield from _rounds(server, folder)
    children.all.remove(server)
    if server.code:
        raise EdgeflockError((server.refusal() if server.code in (1, 2) else "") or server.ending())


def _rounds(server: Child, folder: Path) -> Iterator[int]:
    feed, round = Feed(folder), 0
    try:
        while server.code is None:
            for event in feed.read():
                if event.name == "round_committed":
                    round = int(event.number("round") or 0)
            yield round
            time.sleep(_INTERVAL_S)
    finally:
        feed.close()


def spans(history: History, begin: float) -> Iterator[WorkSpan]:
    """Yield every device's rounds since a moment."""
    opened, done = (
        {
            event.number("round"): event.at
            for event in history.events
            if event.name == name and event.at >= begin
        }
        for name in ("round_opened", "round_committed")
    )
    for row in client_rows(history.run_dir):
        number, train = row["round"], row["train_s"]
        if number in opened and number in done and train:
            yield WorkSpan(row["seat"], opened[number], done[number], train)
