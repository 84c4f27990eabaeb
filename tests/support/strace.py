"""Faults at the n-th system call of a process, by strace: a signal or an error in place of the call."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.processes import Program, until

_DETACH_S = 3.0
_STAYS = 30  # looks in a row: every traced call stops its thread for a moment

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Tracer:
    """strace on one program that waits at its gate; ends with it. With paths: only calls on these."""

    def __init__(
        self, program: Program, gate: Path, calls: str, inject: str, paths: Iterable[Path] = ()
    ) -> None:
        self._log, self._calls = gate.with_suffix(".strace"), gate.with_suffix(".calls")
        command = ["strace", "-f", "-qq", "-o", str(self._calls), "-p", str(program.process.pid)]
        command += [word for path in paths for word in ("-P", str(path))]
        with self._log.open("wb") as log:
            self._strace = subprocess.Popen(
                [*command, "-e", f"trace={calls}", "-e", f"inject={calls}:{inject}"], stderr=log
            )
        until(lambda: is_traced(program) or None, lambda: f"strace: {self._log.read_text()}")
        gate.touch()

    @property
    def injected(self) -> int:
        """How many calls have failed so far."""
        return self._calls.read_text("utf-8", "replace").count("(INJECTED)")

    @property
    def delayed(self) -> int:
        """How many calls have been slow so far."""
        return self._calls.read_text("utf-8", "replace").count("(DELAYED)")

    def wait_until_it_holds(self, program: Program) -> None:
        """Wait until a thread of the program stays in a call that is being made slow."""
        held: dict[str, int] = {}  # how often in a row each was found so

        def look() -> bool | None:
            found = [path.parent.name for path in _threads(program) if _stopped(path)]
            for thread in {*held, *found}:
                held[thread] = held.get(thread, 0) + 1 if thread in found else 0
            return max(held.values(), default=0) >= _STAYS or None

        until(look, lambda: f"{program.name} is not held: {program.text[-3000:]}")

    def close(self) -> None:
        """Let the program go on without."""
        self._strace.terminate()
        try:
            self._strace.wait(_DETACH_S)
        except subprocess.TimeoutExpired:  # it waits for ever for a thread that ends just now
            self._strace.kill()
            self._strace.wait()


def _threads(program: Program) -> list[Path]:
    return list(Path(f"/proc/{program.process.pid}/task").glob("*/stat"))


def _stopped(path: Path) -> bool:
    try:
        return path.read_text().rpartition(")")[2].split()[0] == "t"
    except OSError:  # it has ended since
        return False


def is_traced(program: Program) -> bool:
    """Whether somebody looks at its calls."""
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return "TracerPid:\t0\n" not in status
