"""The processes that the lab starts: their logs, their ends, and the promise that none is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

from edgeflock.lab.becoming import die_with_parent, program
from edgeflock.lab.nursery import Born, Nursery

_REFUSAL = re.compile(r"fl-\w+: error: (.+)")
_GONE_S = 5.0  # after SIGKILL
_POLL_S = 0.02


class Remote(Protocol):
    """A process of another machine, with the words of one of this."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass
class Child:
    """One started process."""

    name: str
    process: subprocess.Popen[bytes] | Born | Remote
    log: Path
    begin: int  # where this life's lines begin in the log

    @property
    def code(self) -> int | None:
        """The exit code, or None while it lives; a signal is a negative number."""
        return self.process.poll()

    def said(self) -> str:
        """Return what this life has logged so far."""
        return "\n".join(self._lines())

    def last_words(self) -> str:
        """Return the last line of the log in words."""
        last = next((line for line in reversed(self._lines()) if line.strip()), "it logged nothing")
        return _in_words(last)

    def refusal(self) -> str:
        """Return the sentence that it ended with, empty if it said none.

        Others may have written to the same log since, in lines of JSON: a server that the run already had.
        """
        said = [found[1] for line in self._lines() if (found := _REFUSAL.match(line))]
        return said[-1] if said else ""

    def _lines(self) -> list[str]:
        with self.log.open("rb") as file:
            file.seek(self.begin)
            return file.read().decode("utf-8", "replace").split("\n")

    def ending(self) -> str:
        """Return how it ended, as a sentence."""
        code = self.code
        how = (
            f"was killed by signal {-code}"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        return f"{self.name} {how}: {self.last_words()} (log: {self.log})"


@dataclass
class Children:
    """All started processes; leaving the context ends those that live, and the nursery."""

    patience_s: float = 15.0  # between SIGTERM and SIGKILL
    all: list[Child] = field(default_factory=list)
    nursery: Nursery | None = None  # what our own programs are forked from

    def begin(
        self, name: str, command: str, arguments: Sequence[str], log: Path, environ: Mapping[str, str]
    ) -> Child:
        """Start one of our own programs: forked where there is a nursery, else by exec."""
        if self.nursery is not None:
            with log.open("ab") as file:
                begin = file.tell()
                born = self.nursery.start(command, arguments, file.fileno(), environ)
            if born is not None:
                return self.take(Child(name, born, log, begin))
        return self.start(name, [*program(command), *arguments], log, environ)

    def start(self, name: str, arguments: Sequence[str], log: Path, environ: Mapping[str, str]) -> Child:
        """Start a process; what it says is appended to the log."""
        with log.open("ab") as file:
            begin = file.tell()
            process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=dict(environ),
                process_group=0,  # Ctrl-C of the terminal reaches only the lab, which then drains them
                preexec_fn=die_with_parent,  # there is one thread here; covers kill -9 of the lab
            )
        return self.take(Child(name, process, log, begin))

    def take(self, child: Child) -> Child:
        """Answer for one that was started, wherever it is."""
        self.all.append(child)
        return child

    def close_nursery(self) -> None:
        """Let the nursery go when nobody else is to be started; who is, starts by exec."""
        if self.nursery is not None:
            self.nursery.close()
            self.nursery = None

    def living(self) -> list[Child]:
        return [child for child in self.all if child.code is None]

    def wait(self, children: Sequence[Child], seconds: float) -> bool:
        """Wait until all of them have ended, at most so long; return whether they have."""
        end = time.monotonic() + seconds
        while any(child.code is None for child in children):
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
        return True

    def kill(self, child: Child) -> None:
        """End one as a power cut would, and forget it: this end is no failure."""
        child.process.kill()
        child.process.wait()
        self.all.remove(child)

    def drain(self) -> None:
        """Ask all that live to end; kill those that do not in time, or at once on a second interrupt."""
        try:
            for child in self.living():
                child.process.terminate()
            self.wait(self.all, self.patience_s)
        except KeyboardInterrupt:
            pass
        for child in self.living():
            child.process.kill()
        for child in self.all:
            # An interrupt within `poll` leaves Popen's lock taken, at which `wait` would stand for ever.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(_GONE_S)

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.drain()
        finally:
            self.close_nursery()


def _in_words(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return line.strip()
    if not isinstance(entry, dict) or "event" not in entry:
        return line.strip()
    rest = {key: value for key, value in entry.items() if key not in ("event", "level", "timestamp")}
    return " ".join([str(entry["event"]), *(f"{key}={value}" for key, value in rest.items())])


def environment_without(prefix: str) -> dict[str, str]:
    """Return this process's environment without the variables of that prefix."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
