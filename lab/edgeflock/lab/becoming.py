"""How a forked process becomes one of our programs: its parent, signals, files, environment and name."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_MOST_FILES = 1 << 20
_ARG_START, _ARG_END, _ENV_START, _ENV_END = 45, 46, 47, 48  # after the name, in /proc/self/stat
_DATA = ("edgeflock.common.datasets.*", "edgeflock.common.partitions.*")
_SERVER, _CLIENT = ("edgeflock.server.daemon", *_DATA), ("edgeflock.client.daemon", *_DATA)
_CELL = ("edgeflock.server.cli", "edgeflock.client.cli", "edgeflock.lab.run.experiment")
_NEEDED: Mapping[str, Sequence[str]] = {  # beside torch and the command itself
    "fl-server": _SERVER,
    "fl-client": _CLIENT,
    "fl-lab": (*_CLIENT, *_SERVER, *_CELL, "edgeflock.methods.*", "edgeflock.common.models.*"),
}
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def program(name: str) -> list[str]:
    """Return how to start a console script with this interpreter, wherever the scripts lie."""
    script = Path(sys.executable).with_name(name)
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", f"from {_module(name)} import main; main()"]


def _module(name: str) -> str:
    room = "server.gate" if name == "fl-gate" else name.removeprefix("fl-")
    return f"edgeflock.{room}.cli"


def needed(name: str) -> Iterator[str]:
    """Yield the modules that a console script imports sooner or later, torch first. None is a plug-in."""
    for pattern in ("torch", _module(name), *_NEEDED[name]):
        yield pattern.removesuffix(".*")
        if pattern.endswith(".*"):
            package = importlib.import_module(pattern.removesuffix(".*"))
            yield from (f"{package.__name__}.{one.name}" for one in pkgutil.iter_modules(package.__path__))


def die_with_parent() -> None:
    """Be asked to end when the parent does, even if that is killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def become(name: str, arguments: Sequence[str], environ: Mapping[str, str], log: int) -> NoReturn:
    """Be that console script from now on, as if it had been started by exec; never returns."""
    os.setpgid(0, 0)
    _forget_signals()
    _take_files(log)
    os.environ.clear()
    os.environ.update(environ)
    words = program(name)
    sys.argv = [words[0], *arguments]
    sys.path.insert(0, str(Path(words[0]).parent))
    _show([sys.executable, *words[:1], *arguments], name)
    for module in needed(name):  # what is not there yet
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    importlib.import_module(_module(name)).main()
    os._exit(1)  # a command ends by itself


def _forget_signals() -> None:
    """Do with signals what a new process does: what is ignored stays so, as under nohup."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _take_files(log: int) -> None:
    """Read from nothing, say everything to the log, and have no other file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(ours, place)
    os.closerange(3, _MOST_FILES)


def _show(words: Sequence[str], name: str) -> None:
    """Let ps show that command line: it is read where the first process of this image had its own.

    What it is longer goes over the environment's first place, which nothing reads any more: each variable
    has been set anew.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_NAME, os.fsencode(name), 0, 0, 0)
    try:
        fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
        begin, end, after, last = (
            int(fields[place]) for place in (_ARG_START, _ARG_END, _ENV_START, _ENV_END)
        )
    except (OSError, ValueError, IndexError):
        return
    room = (last if after == end else end) - begin
    if begin and room > end - begin:
        text = os.fsencode(" ".join(words)).ljust(end - begin, b" ")[: room - 1]
        ctypes.memmove(begin, text + b"\0" * (room - len(text)), room)
