"""Faults at the n-th system call of a process, by strace: a signal or an error in place of the call."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.processes import Program, until

_DETACH_S = 3.0

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
        until(lambda: _traced(program) or None, lambda: f"strace: {self._log.read_text()}")
        gate.touch()

    @property
    def injected(self) -> int:
        """How many calls have failed so far."""
        return self._calls.read_text("utf-8", "replace").count("(INJECTED)")

    @property
    def delayed(self) -> int:
        """How many calls have been slow so far."""
        return self._calls.read_text("utf-8", "replace").count("(DELAYED)")

    def close(self) -> None:
        """Let the program go on without."""
        self._strace.terminate()
        try:
            self._strace.wait(_DETACH_S)
        except subprocess.TimeoutExpired:  # it waits for ever for a thread that ends just now
            self._strace.kill()
            self._strace.wait()


def _traced(program: Program) -> bool:
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return "TracerPid:\t0\n" not in status
