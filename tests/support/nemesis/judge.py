"""What is asked of a run after its faults: the undisturbed run's bits and counts, and everything readable."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support import commands, told_figures
from support.nemesis.field import Field
from support.nemesis.schedule import HISTORY
from support.recount import recount
from support.rows import rows

_NEVER = ("this is a bug", "Traceback", "Fatal Python error")
_REMOVED = {"spool", "control", "control.sock"}
_LAB_S = 100.0
_EXACT, _ROUNDED = 1e-9, 1e-6
_GOING_S = 20.0  # for a process whose server is gone
_REPORTED = 5  # every so many seeds
SOCKETS = shutil.ignore_patterns("*.sock")  # they cannot be copied
_SETTLED = "SELECT epoch, round, client_id, verdict FROM outcomes JOIN seats USING (seat) ORDER BY 1, 2, 3"
_BITS = "SELECT epoch, round, cohort, counted, model_digest, state_digest FROM rounds ORDER BY 1, 2"


@dataclass(frozen=True)
class Left:
    """What a run has left."""

    sha256: str  # of the final model
    rounds: list[list[Any]]  # epoch, number, cohort, counted set, digests of the model and the state
    outcomes: list[list[Any]]  # epoch, round, client, verdict

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def load(path: Path) -> Left:
        return Left(**json.loads(path.read_text("utf-8")))


def left(field: Field) -> Left:
    """Read what the run has left."""
    run_dir = field.server.folder
    model, journal = run_dir / "model.safetensors", run_dir / "journal.sqlite"
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else "there is no final model"
    return Left(sha256, [*map(_plain, rows(journal, _BITS))], [*map(_plain, rows(journal, _SETTLED))])


def _plain(row: tuple[Any, ...]) -> list[Any]:
    return [value.hex() if isinstance(value, bytes) else value for value in row]


def faults(field: Field, left: Left | None, calm: Left | None) -> list[str]:
    """Return what is wrong, in sentences."""
    found = [*_words(field), *_lasting(field)]
    if left:
        found += [*_readable(field), *_recounted(field.server.folder)]
    if left and calm:
        found += _other(field, left, calm)
    return found


def _words(field: Field) -> list[str]:
    """Whatever was said that must never be, and ends without a reason."""
    texts = [(program, program.text) for program in field.flock.programs]
    said = [f"{program.log.name} says: {word}" for program, text in texts for word in _NEVER if word in text]
    silences = [program.silence() for program, _ in texts if not program.process.is_alive()]
    return said + [silence for silence in silences if silence]


def _lasting(field: Field) -> list[str]:
    """What should have gone, and has not."""
    if not field.over:
        return []
    alive = [f"{program.name} still runs" for program in field.flock.programs if program.process.is_alive()]
    alive += [f"a process is left: {line}" for line in _left_running(field.flock.folder)]
    names = {path.name for path in field.server.folder.iterdir()} & _REMOVED
    return alive + [f"{name} is left in the run directory" for name in sorted(names)]


def _left_running(folder: Path) -> list[str]:
    """Return the processes that name the folder and do not go by themselves either, such as a dashboard."""
    end = time.monotonic() + _GOING_S
    while (lines := commands.processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    return lines


def _readable(field: Field) -> list[str]:
    """The commands that people read a run with work."""
    run_dir, found = str(field.server.folder), []
    asked_for: list[tuple[str, ...]] = [("events", run_dir), ("control", run_dir, "status")]
    if field.schedule.seed % _REPORTED == 0:  # its plots take longer than many a schedule
        asked_for.append(("report", run_dir))
    for words in asked_for:
        asked = field.flock.start("fl-lab", *words)
        asked.process.join(_LAB_S)
        if asked.process.exitcode != 0:
            found.append(f"fl-lab {words[0]} ended with {asked.process.exitcode}: {asked.sentence()}")
            asked.kill()
        if any(word in asked.text for word in _NEVER):
            found.append(f"fl-lab {words[0]} says: {asked.sentence()}")
    return found


def _recounted(run_dir: Path) -> list[str]:
    """What a recount from the documentation alone finds other, but for what is shown in few digits."""
    counted = recount(run_dir)
    exact = [told[:3] for told in told_figures.told(run_dir) if told[3] < _ROUNDED]
    return [
        f"{place}: {figure} is {value!r}, recounted {counted[figure]!r}"
        for place, figure, value in exact
        if not math.isclose(value, counted[figure], rel_tol=_EXACT, abs_tol=_EXACT)
    ]


def _other(field: Field, left: Left, calm: Left) -> list[str]:
    """What differs from the undisturbed run, but for what a client that lost its state may change."""
    lost = min(field.progress.lost, default=None)
    found = []
    if lost is not None and not any(map(field.schedule.struck, HISTORY)):
        found.append("a client has lost its state, and its disk was left alone")
    return found + differences(left, calm, lost if field.schedule.setting.keeps else None)


def differences(left: Left, calm: Left, lost: int | None = None) -> list[str]:
    """Return what differs; from the round on in which a state was lost, bits may."""
    found = []
    if left.outcomes != calm.outcomes:
        found.append(f"other verdicts: {_first(left.outcomes, calm.outcomes)}")
    if [row[:4] for row in left.rounds] != [row[:4] for row in calm.rounds]:
        found.append(f"other rounds: {_first(left.rounds, calm.rounds)}")
    if lost is None and left.sha256 != calm.sha256:
        found.append(f"other final bits: {left.sha256[:12]}, undisturbed {calm.sha256[:12]}")
    same = [row for row in calm.rounds if lost is None or row[1] < lost]
    if left.rounds[: len(same)] != same:
        found.append(f"other bits in a round: {_first(left.rounds, same)}")
    return found


def _first(mine: list[list[Any]], calm: list[list[Any]]) -> str:
    """Return the first row in which they differ."""
    for one, other in zip(mine, calm, strict=False):
        if one != other:
            return f"{one}, undisturbed {other}"
    return f"{len(mine)} rows, undisturbed {len(calm)}"


def keep(field: Field, folder: Path) -> None:
    """Put copies of what lies on the ends' own disks beside the logs, to be read later."""
    for end in field.ends.values():
        to = folder / "left" / end.name
        shutil.copytree(end.folder, to, ignore=SOCKETS)
