"""The run directory: its lock, and its small files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeflock.common.errors import EdgeflockError, Locked, UsageError

RUN_TOML = "run.toml"
JOURNAL = "journal.sqlite"
INIT = "init.safetensors"  # the weights it started from, where they were given
ADDRESS = "address"
CONTROL = "control"
CONTROL_SOCKET = "control.sock"
DASHBOARD = "dashboard"
GATES = "gates"  # a folder: of each gate that the server has started one
GATES_SOCKET, GATE_KEY = "gates.sock", "gate.key"
LOCK = "lock"
_ASKED_S = 0.05  # far longer than `is_served` has the lock


def gate_spools(run_dir: Path) -> tuple[Path, ...]:
    """Return where gates of this machine keep updates."""
    return tuple(sorted((run_dir / GATES).glob("*/spool")))


def require_place(folder: Path, flag: str = "--run-dir") -> None:
    """Raise UsageError with a sentence if nothing of ours can ever lie there; nothing is made."""
    require_text(folder, flag)
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            raise UsageError(f"{flag} {str(folder)!r}: {str(path)!r} is a link to what is not there")
        if path.exists() and not path.is_dir():
            what = "" if path == folder else f": {str(path)!r}"
            raise UsageError(f"{flag} {str(folder)!r}{what} is not a directory")


def require_text(path: Path, flag: str) -> None:
    """Raise UsageError for a path that no log, journal or report can tell of."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{flag} {str(path.absolute())!r} is not UTF-8 text: give a path that is") from None


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the directory for this process alone.

    Raises Locked if another process has it, UsageError if it cannot be written.
    """
    try:
        _make(run_dir)
        descriptor = os.open(run_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"--run-dir {str(run_dir)!r} cannot be written: {error.strerror}") from None
    try:
        _take(descriptor)
    except OSError:
        os.close(descriptor)
        raise Locked(f"--run-dir {str(run_dir)!r} is in use by another fl-server") from None
    try:
        with contextlib.suppress(OSError):  # a full disk: then nobody knows who it is
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(run_dir: Path) -> int | None:
    """Return the id of the process that holds the directory, or that held it last; None: it is not known."""
    text = read_small(run_dir / LOCK)
    return int(text) if text.isdigit() else None


def _take(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_ASKED_S)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_served(run_dir: Path) -> bool:
    """Whether a living process holds the directory; one that has only just been killed does not."""
    try:
        descriptor = os.open(run_dir / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _make(folder: Path) -> None:
    """Make a directory and those above it that are missing, durably."""
    if not folder.exists():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # it was made by somebody who may look into the one above
        sync_directory(folder.parent)


def sync_directory(path: Path | str) -> None:
    """Make renames and new names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_small(path: Path, text: str) -> None:
    """Replace a small file in one step, durably."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise EdgeflockError(f"{path} cannot be written: {error.strerror}") from None


def keep_file(source: Path, target: Path) -> None:
    """Copy a file into the directory in one step, durably."""
    temporary = target.with_name(f".tmp-{target.name}")
    shutil.copyfile(source, temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(target)
    sync_directory(target.parent)


def remove_small(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def read_small(path: Path) -> str:
    """Return a small file's text, empty if it is not there."""
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
