"""A start on a full disk, or a locked journal: it waits, as a server that runs does, and says so."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from edgeflock.common.errors import (
    FULL,
    LOCKED,
    NO_SPACE,
    CorruptCheckpoint,
    EdgeflockError,
    JournalBroken,
    UsageError,
)

log = structlog.get_logger()
T = TypeVar("T")
_LITTLE = 1 << 16  # bytes, more than SQLite takes to open a journal
_RETRY_S = 2.0


def when_there_is_room(run_dir: Path, work: Callable[[], T]) -> T:
    """Do what writes to a run directory; while its disk is full or its journal locked by another program,
    wait, and try it from its beginning.

    Raises what it raises for another reason. A signal that asks to go ends the process meanwhile.
    """
    waiting = False
    while True:
        try:
            done = work()
        except UsageError:
            raise
        except (EdgeflockError, OSError) as error:
            if not (trouble := _passing(error, run_dir)):
                raise
            if not waiting:
                log.warning("start_waits", reason=f"{trouble} ({error})")
        else:
            if waiting:
                log.info("start_goes_on")
            return done
        waiting = True
        time.sleep(_RETRY_S)


def _passing(error: BaseException, run_dir: Path) -> str:
    """Return what is behind it that passes, if anything: a full disk is "disk I/O error" to SQLite."""
    if isinstance(error, OSError):
        return NO_SPACE if error.errno in FULL else ""
    if isinstance(error, JournalBroken) and error.passing:
        return error.hindrance
    if isinstance(error, CorruptCheckpoint) and "database is locked" in str(error):  # as it was opened
        return LOCKED
    return NO_SPACE if _is_full(run_dir) else ""


def _is_full(folder: Path) -> bool:
    """Whether not even a little can be written there."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_LITTLE))
    except OSError as error:
        return error.errno in FULL
    return False
