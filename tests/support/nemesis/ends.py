"""The ends of a federation under supervision: each a process that is started again as a service would be."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import commands, powerloss
from support.filecalls import Recorder
from support.powerloss import Disk
from support.processes import Flock, Program

RESTART_S = 1.0  # a service waits 10 s; what ends with 0 or 2 stays down, as in deploy/systemd
_FILLER = "filler"
_BLOCK = 4096


@dataclass
class Clock:
    """A clock of its own for an end."""

    file: Path
    environ: Mapping[str, str]


@dataclass
class End:
    """One end: what it is started with, whether it shall live now, and the lives it has had."""

    name: str
    command: str  # fl-server, fl-client
    words: tuple[str, ...]
    folder: Path  # its run directory, or its state directory
    clock: Clock | None = None
    disk: Disk | None = None  # what a power cut would leave, where one is to come
    lives: list[Program] = field(default_factory=list)
    holds: int = 0  # strokes that want it to be down
    start_at: float = 0.0
    over: bool = False  # it has ended for good
    asked: bool = False  # an operator has told it to go, and starts it again
    ends_with_1: int = 0
    _recorder: Recorder | None = None

    @property
    def program(self) -> Program | None:
        """The living process."""
        return self.lives[-1] if self.lives and self.lives[-1].process.is_alive() else None

    @property
    def text(self) -> str:
        return "".join(life.text for life in self.lives)

    def start(self, flock: Flock) -> None:
        self.asked = False
        if self.clock:
            self.lives.append(
                commands.spawn(flock, (), self.command, *self.words, environ=self.clock.environ)
            )
        elif self.disk:
            gate = flock.folder / f"gate-{len(flock.programs)}"
            self.lives.append(flock.start(self.command, *self.words, gate=gate))
            self._recorder = Recorder(self.lives[-1], gate)
        else:
            self.lives.append(flock.start(self.command, *self.words))

    def signal(self, number: signal.Signals) -> None:
        if program := self.program:
            with contextlib.suppress(ProcessLookupError):
                program.signal(number)

    def kill(self) -> None:
        if self.lives:
            self.lives[-1].kill()

    # ------------------------------------------------------------------------------ its disk

    def fill(self) -> None:
        """Let its disk be full."""
        with contextlib.suppress(OSError), (self.folder / _FILLER).open("wb", buffering=0) as file:
            free = os.statvfs(self.folder)
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
            file.seek(0, os.SEEK_END)
            while file.write(bytes(_BLOCK)):
                pass

    def free(self) -> None:
        (self.folder / _FILLER).unlink(missing_ok=True)

    def note_calls(self) -> None:
        """Take down what the life that is over has done to the disk."""
        if self.disk and self._recorder:
            for call in self._recorder.calls():
                self.disk.do(call)
            self.disk.forget_process()
            self._recorder = None

    def cut_power(self, cut: powerloss.Cut) -> None:
        """Kill it and leave on its disk what a power cut may."""
        self.kill()
        self.note_calls()
        assert self.disk is not None
        image = self.disk.after(cut)
        self._clear()
        powerloss.write(image, self.folder)
        self.disk = Disk(self.folder, image)

    def put(self, copy: Path) -> None:
        """Let its directory be what that copy holds."""
        self._clear()
        shutil.copytree(copy, self.folder, dirs_exist_ok=True)

    def copy(self, to: Path) -> bool:
        """Copy its directory as it is at this moment; what a copy of a living one misses makes it none."""
        try:
            shutil.copytree(self.folder, to, ignore=shutil.ignore_patterns(".*", "lock", "*.sock", _FILLER))
        except shutil.Error:  # a file has gone meanwhile
            return False
        return True

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@dataclass
class Tail:
    """The new lines of a log, each once."""

    log: Path
    read: int = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        if not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self.read)
            whole, _, _ = file.read().rpartition(b"\n")
        self.read += len(whole) + bool(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                yield json.loads(line)


@dataclass
class Progress:
    """How far the run is, by its logs."""

    listening: bool = False
    round: int = 0  # that is open now; a server that went back to a copy has opened it before
    opened: int = 0
    committed: int = 0
    ended: bool = False
    reason: str = ""  # why
    settled: dict[str, int] = field(default_factory=dict)  # by client
    heard: set[str] = field(default_factory=set)  # clients that know that the run is over
    lost: list[int] = field(default_factory=list)  # rounds that were open when a state was lost
    said: str = ""  # what the server has logged last

    def note(self, entry: Mapping[str, Any]) -> None:
        self.said = entry["event"]
        match entry["event"]:
            case "run_started":
                self.round = entry["round"] + 1
            case "listening":
                self.listening = True
            case "round_opened" | "last_round_opened":
                self.round = entry["round"]
                self.opened = max(self.opened, self.round)
            case "round_committed" | "last_round_committed":
                self.committed = max(self.committed, entry["round"])
            case "run_ended" | "run_is_over":
                self.ended = True
                self.reason = entry["reason"]
            case "client_leaving" if entry["reason"] == self.reason:
                self.heard.add(entry["client"])  # it may be gone before it writes that down

    def note_loss(self, entry: Mapping[str, Any]) -> None:
        if entry["event"] == "state_lost":
            self.lost.append(self.round)

    def note_client(self, entry: Mapping[str, Any]) -> None:
        match entry["event"]:
            case "update_settled":
                client = entry["client_id"]
                self.settled[client] = max(self.settled.get(client, 0), entry["round"])
            case "run_over":
                self.heard.add(entry["client_id"])
