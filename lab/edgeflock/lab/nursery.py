"""A process that has imported what runs need, and does nothing else: the lab's others are forked from it."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from edgeflock.lab.becoming import become, die_with_parent, needed

_PR_SET_CHILD_SUBREAPER = 36
_ENTRY = "from edgeflock.lab.nursery import main; main()"
_OWN = "FL_"  # variables that only Python reads, at a command's begin
_POLL_S = 0.01
_MOST_FILES = 1 << 20
_born_here = False  # whether this process was forked from a nursery, and has imported what it had


@dataclass
class Born:
    """A process of ours that was forked from a nursery: what `subprocess.Popen` offers of one."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it lives; a signal is a negative number."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has asked: as Popen says then
                self.returncode = 0
                return 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired if that takes longer."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # until it is asked for its end, the number is nobody else's
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass
class Nursery:
    """The lab's end: who is asked for here becomes a child of the lab, as if it had started it."""

    _process: subprocess.Popen[bytes] | Born
    _line: socket.socket | None
    _environ: Mapping[str, str]

    @classmethod
    def open(cls, name: str) -> Nursery | None:
        """Begin one that imports what a console script needs; None where none can be had.

        In a process that was itself born in one it is forked, and has imported everything at once.
        """
        if not _adopt(True):
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = _forked(theirs, name) if _born_here else _started(theirs, name)
        return cls(process, ours, _compiled(os.environ))

    def start(self, name: str, arguments: Sequence[str], log: int, environ: Mapping[str, str]) -> Born | None:
        """Start a console script that says everything to that file, when what it needs is imported.

        None if it has to be started otherwise: the nursery is gone, or the environment is one that libraries
        have read in it.
        """
        if self._line is None or _compiled(environ) != self._environ:
            return None
        told = {"name": name, "arguments": list(arguments), "environ": dict(environ), "folder": os.getcwd()}
        try:
            pid = self._ask(json.dumps(told).encode(), log)
        except OSError:
            pid = 0
        except BaseException:  # interrupted: what comes of it is heard by nobody
            self.close()
            raise
        if not pid:
            self.close()
            return None
        return Born(pid)

    def _ask(self, request: bytes, log: int) -> int:
        assert self._line is not None
        paper = os.memfd_create("birth")
        try:
            os.write(paper, request)
            socket.send_fds(self._line, [b"."], [paper, log])
        finally:
            os.close(paper)
        return int(self._line.recv(32) or b"0")

    def close(self) -> None:
        """Let it end; what was born in it stays."""
        if self._line is not None:
            self._line.close()
            self._line = None
            self._process.kill()
            self._process.wait()
            _adopt(False)


def _adopt(yes: bool) -> bool:
    """Let processes below us whose parent ends become ours, or no more; return whether that can be had."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) == 0)


def _compiled(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a library may have read for good when it was loaded."""
    return {name: value for name, value in environ.items() if not name.startswith(_OWN)}


def _started(theirs: socket.socket, name: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-P", "-c", _ENTRY, str(theirs.fileno()), str(os.getpid()), name]
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # what it cannot import, a process started otherwise tells in its own log
        pass_fds=[theirs.fileno()],
        process_group=0,
    )


def _forked(theirs: socket.socket, name: str) -> Born:
    lab = os.getpid()
    pid = os.fork()
    if pid:
        return Born(pid)
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        _live(theirs, lab, name)
    finally:
        os._exit(1)


# ------------------------------------------------------------------------------------- in the nursery


def main() -> NoReturn:
    """Be a nursery: what was started by exec."""
    line, lab, name = sys.argv[1:]
    _live(socket.socket(fileno=int(line)), int(lab), name)


def _live(line: socket.socket, lab: int, name: str) -> NoReturn:
    """Import one module after the other, and bear who is asked for, until the lab is gone."""
    die_with_parent()
    if os.getppid() != lab:
        os._exit(0)
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, _MOST_FILES)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read at gRPC's import; a command sets it before that
    gc.disable()
    for module in needed(name):
        importlib.import_module(module)
        while select.select([line], [], [], 0)[0]:  # who waits need not wait for the rest
            _serve(line, lab)
    while True:
        _serve(line, lab)


def _serve(line: socket.socket, lab: int) -> None:
    """Take one order and tell the number of the process, 0 if there is none."""
    said, files, _, _ = socket.recv_fds(line, 16, 2)
    if not said:
        os._exit(0)
    paper, log = files
    with open(paper, "rb") as file:
        file.seek(0)
        order = json.load(file)
    gc.freeze()  # what is here for good is looked at by no collection, which would copy its pages
    pid = _bear(lab, order, log)
    os.close(log)
    line.send(str(pid).encode())


def _bear(lab: int, order: Mapping[str, Any], log: int) -> int:
    """Fork by way of a process that ends at once: so the child becomes the lab's, which hears of its end."""
    heard, told = os.pipe()
    between = os.fork()
    if not between:
        try:
            os.write(told, str(_child(lab, order, log)).encode())
        finally:
            os._exit(0)
    os.close(told)
    os.waitpid(between, 0)
    number = os.read(heard, 32)
    os.close(heard)
    return int(number or b"0")


def _child(lab: int, order: Mapping[str, Any], log: int) -> int:
    between = os.getpid()
    try:
        child = os.fork()
    except OSError:
        return 0
    if child:
        return child
    try:
        while os.getppid() == between:
            os.sched_yield()
        die_with_parent()
        if os.getppid() == lab:
            _begin(order, log)
    finally:
        os._exit(1)


def _begin(order: Mapping[str, Any], log: int) -> NoReturn:
    global _born_here
    _born_here = True
    os.chdir(order["folder"])
    become(order["name"], order["arguments"], order["environ"], log)
