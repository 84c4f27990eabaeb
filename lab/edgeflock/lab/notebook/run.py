"""A run opened from Python, going on or at rest: what it has done and cost as data frames, its model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgeflock.common.command.options import public
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab import history
from edgeflock.lab.grid.grid import CELLS
from edgeflock.lab.history import History
from edgeflock.lab.notebook import tables
from edgeflock.lab.notebook.frames import Library, Row, frame, library
from edgeflock.lab.notebook.pictures import Drawing, picture
from edgeflock.server.files.run_dir import RUN_TOML
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import require

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import nn

Place = str | os.PathLike[str]


def open(run: Place | Run, *, frames: Library | None = None) -> Run:
    """Open a run by its directory, going on or at rest.

    `frames` is the library of its data frames: "pandas" or "polars", by default whichever is installed.
    Raises an error with a sentence if there is no run.
    """
    return Run(run.path if isinstance(run, Run) else run, frames=frames)


class Run:
    """A run: every property says how it stands when it is asked, so a run that goes on can be asked again."""

    def __init__(self, run: Place, *, frames: Library | None = None) -> None:
        if not isinstance(run, (str, os.PathLike)):
            raise BadValue("run", run, "a run directory, as a text or a Path")
        self.path = Path(run)
        if (self.path / CELLS).is_dir():
            example = next((f", such as {one}" for one in sorted((self.path / CELLS).iterdir())), "")
            raise UsageError(f"{self.path} is a comparison, allowed is one of its runs{example}")
        self._frames: Library | None = frames
        if frames is not None:
            library(frames)
        require(self.path)

    @property
    def history(self) -> History:
        """All that is known of the run, as values."""
        return history.read(self.path)

    # ------------------------------------------------------------------------------- as data frames

    @property
    def evaluations(self) -> DataFrame:
        """A row for every test of every model: round, model, and what was found."""
        return self._frame(tables.evaluations(self.history), "round", "model")

    @property
    def rounds(self) -> DataFrame:
        """A row for every committed round: its members, what became of their updates, what was measured."""
        return self._frame(tables.rounds(self.history), "round")

    @property
    def costs(self) -> DataFrame:
        """A row for every round, those that were given up too: bytes, seconds, energy, operations."""
        return self._frame(tables.costs(self.history), "epoch", "round", "stands")

    @property
    def clients(self) -> DataFrame:
        """A row for every client over the whole run: samples, verdicts, costs, how its own model did."""
        return self._frame(tables.clients(self.history), "seat", "client", "samples")

    @property
    def ledger(self) -> DataFrame:
        """A row for every client and round: the verdict on its update, and what it cost."""
        return self._frame(history.client_rows(self.path), "epoch", "round", "seat", "client")

    @property
    def events(self) -> DataFrame:
        """A row for every event: who came and went, what each round came to."""
        return self._frame(tables.events(self.history), "at", "name")

    def curve(self, what: str | None = None, *, over: str = "rounds", model: str | None = None) -> DataFrame:
        """Return what a model's tests have found, round by round, beside what the run had cost by then.

        `what` is a metric of `evaluations`, by default the first; `over` is rounds, seconds, bytes,
        iterations, flops, all_flops, energy_j or simulated_s; `model` is by default the global one.
        """
        return self._frame(tables.curve(self.history, what, over, model), "round")

    def _frame(self, rows: Iterable[Row], *columns: str) -> DataFrame:
        return frame(rows, self._frames, columns)

    # ---------------------------------------------------------------------------------- and otherwise

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.history.ending is not None

    @property
    def options(self) -> dict[str, Any]:
        """The options that the run has, by name."""
        config = from_toml(self.path / RUN_TOML)
        said = {entry.name: getattr(config, entry.name) for entry in public(config)}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def summary(self) -> dict[str, Any]:
        """What the run was, how it stands, what its last test has found, and what it has cost so far."""
        return tables.summary(self.history)

    def plot(
        self,
        what: str | None = None,
        *,
        over: str = "rounds",
        beside: Place | Run | Iterable[Place | Run] = (),
    ) -> Drawing:
        """Draw a metric of the tests or of the method, of this run or with others beside it."""
        given = [beside] if isinstance(beside, (str, os.PathLike, Run)) else beside
        others = [one.path if isinstance(one, Run) else Path(one) for one in given]
        return picture([self.history, *(history.read(path) for path in others)], what, over)

    def model(self, which: Literal["final", "best"] | int = "final") -> nn.Module:
        """Return the final or the best model, or that of a round that is kept, as a module of torch."""
        from edgeflock.lab.export import model as models  # brings torch

        if isinstance(which, int):
            opened = models.opened(self.path)
            return models.Classifier(models.of_round(opened, self.path, which)).eval()
        if which not in ("final", "best"):
            raise BadValue("which", which, '"final", "best" or the number of a round that is kept')
        if which == "final" and not self.ended:
            raise UsageError(f'{self.path} is not over: model("best") gives the best model so far')
        return models.take(self.path, which).classifier

    def __repr__(self) -> str:
        said = tables.summary(self.history)
        state = said["state"] if said["state"] != "going on" else "is going on"
        done = f"{said['rounds']} round{'s'[said['rounds'] == 1 :]}"
        found = [f"{name} {said[name]:.4f}" for name in tables.metrics(self.history)[:1] if name in said]
        return f"<{self.path}: {', '.join([state, done, *found])}>"
