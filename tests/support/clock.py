"""A wall clock of its own for a process: libfaketime goes by a file, in which it jumps."""

from __future__ import annotations

import os
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

READ_AGAIN_S = 1  # so often does the library look into its file
_VENDORED = "vendor/libfaketime/src/libfaketime.so.1"  # in the package of that name


class NoFakedClock(Exception):
    """Why no clock can be faked here."""


def faked(file: Path) -> dict[str, str]:
    """Return the environment in which the wall clock, and it alone, goes by that file."""
    found = find_spec("libfaketime")
    places = found.submodule_search_locations if found is not None else None
    library = Path(next(iter(places))) / _VENDORED if places else None
    if library is None or not library.exists():
        raise NoFakedClock("libfaketime is not installed")
    variables = {"FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_CACHE_DURATION": str(READ_AGAIN_S)}
    environ = {"LD_PRELOAD": str(library), **variables, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    set_to(file, "+2d")
    probe = subprocess.run(["date", "+%s"], env=os.environ | environ, capture_output=True, check=False)
    if int(probe.stdout or 0) < time.time() + 100_000:
        raise NoFakedClock(f"libfaketime does not work here: {probe.stderr.decode().strip()}")
    set_to(file, "+0")
    return environ


def set_to(file: Path, jump: str) -> None:
    """Let the clock be so much further, or behind; it is seen within READ_AGAIN_S."""
    file.write_text(f"{jump}\n")
