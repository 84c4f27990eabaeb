"""Which runs lie below some folders, and where each is: read from its directory, no server is asked."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgeflock.common.errors import EdgeflockError, MissingData
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Reader, begun

HEADS = ("run", "state", "round", "best", "method", "written", "server")
_TELLING = {  # what a server has said last of whether rounds go on
    "run_paused": "paused",
    "run_resumed": "running",
    "round_opened": "running",
    "last_round_opened": "running",
    "run_parked": "running",  # another life goes on
}
_LATELY = 200  # events that are looked through for it
_UNTOLD = ("client_joined", "client_ready", "client_left", "refused")  # of which there may be more at a time


@dataclass(frozen=True)
class RunLine:
    """One run."""

    run: str  # its directory, as it was found
    state: str  # gathering, running, paused; completed, stopped, failed; interrupted: it has no server
    method: str
    round: int  # committed rounds of training
    rounds: int  # asked for
    metric: str
    best: float | None  # of the global model, by that metric
    written: float  # seconds since 1970; when something was written last
    served: bool  # a server is alive
    address: str  # where its clients find it
    dashboard: str

    def cells(self) -> tuple[str, ...]:
        """Return what stands in a table of runs."""
        best = "-" if self.best is None else f"{self.metric} {self.best:.4f}"
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.written))
        server = (self.address or "alive") if self.served else "-"
        return self.run, self.state, f"{self.round}/{self.rounds}", best, self.method or "-", at, server

    def fields(self) -> dict[str, Any]:
        return asdict(self)


class Inventory:
    """What lies below some folders, looked at again and again: what nobody has moved is not read again."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._known: dict[Path, RunLine] = {}

    def look(self) -> list[RunLine]:
        """Return the runs as they are now, those that were written last in the end.

        Raises MissingData if a folder is not there.
        """
        self._known = {run_dir: self._entry(run_dir) for run_dir in below(self._folders)}
        return sorted(self._known.values(), key=lambda one: one.written)

    def _entry(self, run_dir: Path) -> RunLine:
        known = self._known.get(run_dir)
        still = known is not None and not known.served and known.written == _written(run_dir)
        return known if known is not None and still and not rundir.is_served(run_dir) else entry(run_dir)


def below(folders: Iterable[Path]) -> list[Path]:
    """Return the run directories at or below these, each once.

    Raises MissingData if a folder is not there.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise MissingData(f"{folder} is not a folder: give one below which runs lie")
        for run_dir in _walked(folder):
            found.setdefault(run_dir.resolve(), run_dir)
    return sorted(found.values())


def _walked(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        if rundir.RUN_TOML in files and {rundir.JOURNAL, rundir.LOCK} & {*files}:
            folders.clear()  # what lies in a run is no other run
            yield Path(place)


def entry(run_dir: Path) -> RunLine:
    """Return where a run is; one that cannot be read is told of, too."""
    served, state = rundir.is_served(run_dir), ""
    config, reader = ServerConfig(), None
    found: dict[str, Any] = {"round": 0, "metric": "", "best": None}
    try:
        config = from_toml(run_dir / rundir.RUN_TOML)
        if (reader := begun(run_dir)) is not None:
            with contextlib.closing(reader):
                state, found = _state(reader, served=served), _far(reader)
    except (EdgeflockError, OSError):
        state = "unreadable"
    return RunLine(
        run=str(run_dir),
        state=state or ("gathering" if served else "interrupted"),
        method="" if state == "unreadable" else config.method,
        rounds=config.rounds,
        written=_written(run_dir),
        served=served,
        address=rundir.read_small(run_dir / rundir.ADDRESS) if served else "",
        dashboard=rundir.read_small(run_dir / rundir.DASHBOARD) if served else "",
        **found,
    )


def _state(reader: Reader, *, served: bool) -> str:
    meta = reader.meta()
    if ended := meta.get("ended_kind"):
        return ended
    if not served:
        return "interrupted"
    if "stop" in meta:
        return "stopping"
    if meta.get("paused") == "1":
        return "paused"
    said = reversed(reader.events_before(2**53, _LATELY, _UNTOLD))
    last = next((event for event in said if event.name in _TELLING), None)
    if last is None or (last.name == "run_parked" and not last.number("round")):  # before its first round
        return "gathering"
    return _TELLING[last.name]


def _far(reader: Reader) -> dict[str, Any]:
    best = reader.best()
    return {"round": reader.trained(), "metric": reader.measures()[0].name, "best": best and best[0]}


def _written(run_dir: Path) -> float:
    """Return when the journal was written last; before there is one, when the run was asked for."""
    at = 0.0
    for name in (rundir.JOURNAL, f"{rundir.JOURNAL}-wal", rundir.RUN_TOML):
        with contextlib.suppress(OSError):
            status = (run_dir / name).stat()
            at = max(at, status.st_mtime if status.st_size else 0.0)  # readers leave an empty one
    return at
