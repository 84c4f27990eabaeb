"""fl-lab runs: the runs below some folders, listed, followed, and told what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from edgeflock.common.command import streams
from edgeflock.common.errors import EdgeflockError, MissingData, UsageError
from edgeflock.lab.operate.control import STOPPED, told
from edgeflock.lab.operate.inventory import HEADS, Inventory, RunLine, below
from edgeflock.server.files.run_dir import is_served

_USUAL = Path("runs")  # where fl-lab run puts them
_ACTIONS = ("pause", "resume", "stop")
_INTERVAL_S = 1.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, type=click.Path(path_type=Path), metavar="[pause|resume|stop] [DIR]...")
@click.option("--follow", is_flag=True, help="Go on with a line for every run that moves, until Ctrl-C.")
@click.option("--alive", is_flag=True, help="Only runs whose server is alive.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with all that is known.")
@click.option("--reason", default=STOPPED, help="With stop: why, for the journals.", show_default=True)
def runs(words: tuple[Path, ...], follow: bool, alive: bool, as_json: bool, reason: str) -> int:
    """List the runs at and below every DIR (runs, if none is given): state, round, best model, server.

    With pause, resume or stop before them it tells the living servers of these runs to do so.
    """
    action = str(words[0]) if words and str(words[0]) in _ACTIONS else ""
    if reason != STOPPED and action != "stop":
        raise UsageError("--reason goes with stop")
    if action and (follow or alive or as_json):
        raise UsageError(f"--follow, --alive and --json are of the list, and {action} lists nothing")
    if action:
        return _tell(action, words[1:], reason)
    shelf = Inventory(words or (_USUAL,))
    listed, tell = _chosen(shelf, alive=alive), _Lines(as_json=as_json)
    if listed or follow:
        tell.all(listed)
    else:
        click.echo(
            f"no {'living ' if alive else ''}run lies below {', '.join(map(str, words or (_USUAL,)))}",
            err=True,
        )
    while follow and streams.heard():
        time.sleep(_INTERVAL_S)
        before, listed = {one.run: one for one in listed}, _chosen(shelf, alive=alive)
        tell.each(one for one in listed if _moved(before.get(one.run), one))
    return 0


def _chosen(shelf: Inventory, *, alive: bool) -> list[RunLine]:
    return [one for one in shelf.look() if one.served or not alive]


def _moved(before: RunLine | None, now: RunLine) -> bool:
    told = (now.state, now.round, now.address)
    return before is None or (before.state, before.round, before.address) != told


class _Lines:
    """Rows below each other; what comes later stands below the same heads."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._widths = [len(head) for head in HEADS]

    def all(self, entries: Sequence[RunLine]) -> None:
        if not self._as_json:
            rows = [one.cells() for one in entries]
            self._widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
            click.echo(self._line(HEADS))
        self.each(entries)

    def each(self, entries: Iterable[RunLine]) -> None:
        for one in entries:
            click.echo(json.dumps(one.fields()) if self._as_json else self._line(one.cells()))

    def _line(self, cells: Sequence[str]) -> str:
        padded = (f"{cell:<{width}}" for cell, width in zip(cells, self._widths, strict=True))
        return "  ".join(padded).rstrip()


def _tell(action: str, places: Sequence[Path], reason: str) -> int:
    """Tell every run that is named, and every one below a folder that has a living server."""
    if not places:
        raise UsageError(f"{action} needs a run directory, or a folder below which runs go on")
    failed: list[EdgeflockError] = []
    for run_dir in _meant(places):
        try:
            click.echo(f"{run_dir}: {told(run_dir, action, reason=reason)}")
        except EdgeflockError as error:
            failed.append(error)
    for one in failed[1:]:
        click.echo(f"fl-lab: error: {one}", err=True)
    if failed:
        raise failed[0]
    return 0


def _meant(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        there = below([place])
        meant = there if place in there else [run_dir for run_dir in there if is_served(run_dir)]
        if not meant:
            raise MissingData(f"{place} holds no run whose server is alive")
        found += meant
    return list(dict.fromkeys(found))
