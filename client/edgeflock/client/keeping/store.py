"""The store: one client's method state in one run, two generations and a candidate."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import structlog

from edgeflock.client.keeping import statefile
from edgeflock.client.keeping.files import replace_file
from edgeflock.client.protocol import Generation
from edgeflock.common.errors import BadValue, CorruptState
from edgeflock.methods.kit.values import State

log = structlog.get_logger(__name__)

GENERATIONS = 2
RUNS_KEPT = 4  # folders of earlier runs; a run that comes back after more starts as on first participation
_ORDER = "runs.order"  # a client's runs, the last one it came to at the end
_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"state-(\d{6,})\.safetensors")


class Store:
    """What a method keeps of a client from round to round.

    The candidate belongs to the update in the outbox: `promote` makes it the state, `discard` drops it.
    Every file is stamped with the update after which it is the state, and only a stamp says what it is: after
    a power cut a name may stand for what its file held rounds ago. What cannot be read, or is another than
    it should be, is dropped with a log line; the client starts as on first participation.
    """

    def __init__(self, client_folder: Path, run_id: str) -> None:
        if not _RUN_ID.fullmatch(run_id):
            raise BadValue("run id", run_id, "1 to 64 letters, digits, dots, dashes and underscores")
        self._folder = client_folder / "runs" / run_id
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_old_runs(client_folder, run_id)
        self._candidate = self._folder / "candidate.safetensors"
        self._spare = self._folder / "spare.safetensors"
        self.forgotten: Generation | None = None  # the state that is known to be lost
        self._said = False  # that it is
        self._kept = self._listed()
        self.candidate = self._read_candidate()  # of which update there is a candidate, whole

    def generations(self) -> tuple[Generation, ...]:
        """Return what is kept, oldest first."""
        return tuple(self._kept)

    def load(self) -> State:
        """Return the newest state, or an empty one."""
        if not self._kept:
            return State()
        newest = self._kept[-1]
        try:
            state, generation = statefile.read(self._file(newest.round))
            if generation != newest:
                raise CorruptState(f"{self._file(newest.round)} is of another update")
            return state
        except (CorruptState, OSError) as error:
            self.forgotten = newest
            self._lose(str(error))
            return State()

    def stage(self, state: State | None, generation: Generation) -> bool:
        """Write the candidate of an update; None means that the update leaves the state as it is.

        Returns whether there is a candidate: nothing is written for a method that keeps nothing.
        """
        if state is None or not (state.vectors or state.scalars or self._kept):
            self.discard()
            return False
        self.candidate = None
        statefile.write(self._spare, state, generation)
        self._spare.replace(self._candidate)
        self.candidate = generation
        return True

    def staged(self, generation: Generation) -> bool:
        """Return whether the candidate of that update is there, or has become the state already."""
        return generation in self._kept or self.candidate == generation

    def forget(self, update: Generation) -> None:
        """The state after that counted update is not here: drop all that is kept, and start afresh."""
        here = (
            f"the newest here is after round {self._kept[-1].round}" if self._kept else "there is none here"
        )
        self.forgotten = update
        self._lose(f"the server has counted the update of round {update.round}; of the states {here}")
        self.discard()

    def promote(self, update: Generation) -> None:
        """Make the candidate of that counted update the state; what is the state already stays it.

        Any other candidate is of another history, and without the one that counted the state is lost.
        """
        if self._kept and self._kept[-1] == update:
            return
        if self.candidate != update:
            self.forget(update)
            return
        self._candidate.replace(self._file(update.round))
        self.candidate, self.forgotten, self._said = None, None, False
        self._kept = [kept for kept in self._kept if kept.round < update.round]
        self._kept.append(update)
        while len(self._kept) > GENERATIONS:  # the oldest file becomes the next candidate's
            self._file(self._kept.pop(0).round).replace(self._spare)

    def discard(self) -> None:
        """Drop the candidate; its file is used again."""
        self.candidate = None
        if self._candidate.exists():
            self._candidate.replace(self._spare)

    def rewind(self, keep: int) -> None:
        """Drop every state later than that round: all, with 0."""
        for kept in [kept for kept in self._kept if kept.round > keep]:
            self._file(kept.round).unlink(missing_ok=True)
            self._kept.remove(kept)

    def _file(self, round: int) -> Path:
        return self._folder / f"state-{round:06d}.safetensors"

    def _lose(self, reason: str) -> None:
        if not self._said:
            log.warning("state_lost", reason=reason)
        self._said = True
        self.rewind(0)

    def _read_candidate(self) -> Generation | None:
        try:
            return statefile.read(self._candidate)[1]
        except (CorruptState, OSError):
            return None

    def _listed(self) -> list[Generation]:
        states = (_FILE.fullmatch(file.name) for file in self._folder.iterdir())
        files = [self._file(number) for number in sorted(int(state[1]) for state in states if state)]
        try:
            found = [statefile.read_generation(file) for file in files]
            if [self._file(one.round) for one in found] != files:
                raise CorruptState(f"the states in {self._folder} are of other rounds than their names say")
        except (CorruptState, OSError) as error:
            self._said = True
            log.warning("state_lost", reason=str(error))
            for file in files:
                file.unlink()
            return []
        return found


def _forget_old_runs(client_folder: Path, run_id: str) -> None:
    """Keep the run that the client is in, and the last ones before it in the order in which it was there.

    Files' dates say nothing of that: a device may have no clock.
    """
    there = {path.name for path in (client_folder / "runs").iterdir()}
    if there == {run_id}:
        return
    noted = _noted(client_folder / _ORDER)
    unknown = there.difference(noted, (run_id,))  # the note was torn, or is of before there was one
    order = [*sorted(unknown), *(name for name in noted if name in there and name != run_id), run_id]
    if order[-RUNS_KEPT:] != noted:  # lasting it need not be: the run at hand is never forgotten
        replace_file(client_folder / _ORDER, "\n".join(order[-RUNS_KEPT:]).encode(), lasting=False)
    for name in order[:-RUNS_KEPT]:
        shutil.rmtree(client_folder / "runs" / name)


def _noted(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").split("\n")
    except OSError:
        return []
