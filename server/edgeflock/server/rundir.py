"""The run directory: its lock, its small files, and the story that its journal tells."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeflock.common.errors import EdgeflockError, Locked, UsageError
from edgeflock.server import journal
from edgeflock.server.records import Story, read_story, write_meta

RUN_TOML = "run.toml"
JOURNAL = "journal.sqlite"
ADDRESS = "address"
CONTROL = "control"
DASHBOARD = "dashboard"


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the directory for this process alone.

    Raises Locked if another process has it, UsageError if it cannot be written.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"--run-dir {str(run_dir)!r} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise Locked(f"--run-dir {str(run_dir)!r} is in use by another fl-server") from None
    try:
        yield
    finally:
        os.close(descriptor)


def write_small(path: Path, text: str) -> None:
    """Replace a small file in one step."""
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        raise EdgeflockError(f"{path} cannot be written: {error.strerror}") from None


def remove_small(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def read_small(path: Path) -> str:
    """Return a small file's text, empty if it is not there."""
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def tell(run_dir: Path) -> Story:
    """Return what the journal holds, making the journal and the run's id if they are new."""
    with contextlib.closing(journal.connect(run_dir / JOURNAL)) as connection:
        story = read_story(connection)
        if "run_id" not in story.meta:
            story.meta["run_id"] = secrets.token_hex(16)
            with connection:
                connection.execute("BEGIN")
                write_meta(connection, run_id=story.meta["run_id"], epoch="0")
                connection.execute("COMMIT")
        return story
