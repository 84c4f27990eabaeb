"""One run as a report tells of it: history, name, and what must be computed, or why it could not be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload import tensorheader
from edgeflock.lab.history import COMPLETED, History
from edgeflock.lab.report.exam import Exam, examine
from edgeflock.lab.report.labels import Table, distribution
from edgeflock.lab.report.names import cell_names, order, run_names
from edgeflock.lab.report.options import Options, given

T = TypeVar("T")
_SCORE = re.compile(r"score (\d+)")


@dataclass(frozen=True)
class Found(Generic[T]):
    """Something that may not be there: then why."""

    value: T | None
    reason: str = ""


@dataclass(frozen=True)
class Subject:
    """One run of the report."""

    number: int  # from 0, in the order shown
    name: str
    history: History
    given: Options  # what it was given, of its configuration
    labels: Found[Table]
    exam: Found[Exam]
    scores: tuple[tuple[str, float], ...]  # pFedMo's, of each client, as of the last round

    @property
    def ended(self) -> str:
        """How it ended, in a word where nothing is the matter."""
        ending = self.history.ending
        return ending.kind if ending is not None and ending.kind == COMPLETED else self.state

    @property
    def state(self) -> str:
        """How it ended, in words."""
        ending = self.history.ending
        if ending is None:
            done, asked = len(self.history.training), self.history.config.rounds
            return f"not finished: {done} of {asked} rounds are committed"
        return f"{ending.kind}: {ending.reason}" if ending.reason else ending.kind


def subjects(runs: Sequence[History], data_root: Path | None) -> list[Subject]:
    """Compute what there is to compute of every run; cells of a comparison are put in order."""
    told = [given(history.config) for history in runs]
    folders = run_names([history.run_dir for history in runs])
    names = cell_names(folders, [history.config for history in runs], told)
    places = order(names) if names != folders else range(len(runs))
    return [
        _subject(number, names[place], told[place], runs[place], data_root)
        for number, place in enumerate(places)
    ]


def _subject(number: int, name: str, told: Options, history: History, data_root: Path | None) -> Subject:
    labels = _found(partial(distribution, history, data_root))
    exam = _found(partial(examine, history, data_root))
    return Subject(number, name, history, told, labels, exam, scores(history))


def _found(compute: Callable[[], T]) -> Found[T]:
    try:
        return Found(compute())
    except EdgeflockError as error:
        return Found(None, str(error))


def scores(history: History) -> tuple[tuple[str, float], ...]:
    """Return what the method's state says of each client's score, from the newest checkpoint."""
    folders = sorted((history.run_dir / "rounds").glob("[0-9]*"), reverse=True)
    path = next((folder / "state.safetensors" for folder in folders), None)
    names = {client.seat: client.name for client in history.clients}
    scalars = _scalars(path) if path and path.is_file() else {}
    told = {int(match[1]): value for name, value in scalars.items() if (match := _SCORE.fullmatch(name))}
    return tuple((names.get(seat, str(seat)), told[seat]) for seat in sorted(told))


def _scalars(path: Path) -> dict[str, float]:
    """Return the scalars in a state file's header, none if it is not one."""
    try:
        with path.open("rb") as file:
            metadata = tensorheader.parse(tensorheader.read(file)).metadata
        return dict(json.loads(metadata["scalars"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
