"""What can be done next with a run: commands that work as they are printed, from where they are printed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from edgeflock.common.command import extras
from edgeflock.common.command.typed import typed
from edgeflock.server.console.caution import Caution

_FOR_REPORTS = ("jinja2", "matplotlib")


def command(name: str, *words: str | Path) -> str:
    """Return a command line with one of our programs; paths below here are said from here."""
    said = [shortest(word) if isinstance(word, Path) else word for word in words]
    return shlex.join([typed(name), *said])


def onward(run_dir: Path, caution: Caution | None) -> Iterator[tuple[str, str]]:
    """Yield what to hear about a run that is over, and what to type next."""
    if caution is not None:
        yield "caution", caution.words + _way_out(run_dir, caution)
    if extras.installed(*_FOR_REPORTS):
        yield "next", command("fl-lab", "report", run_dir)
    else:
        lacking = f"fl-lab report {extras.needs(*_FOR_REPORTS)}"
        yield "next", f"{command('fl-lab', 'events', run_dir)}; {lacking}"


def _way_out(run_dir: Path, caution: Caution) -> str:
    if caution.best is None:
        return f"; {caution.remedy}"
    export = command("fl-lab", "export", run_dir, "--which", "best")
    return f"; {export} takes that of round {caution.best.round}"


def shortest(path: Path) -> str:
    """Return a path from here if it lies below."""
    try:
        from_here = os.path.relpath(path)
    except (OSError, ValueError):  # there is no here any more
        return str(path)
    return str(path.absolute()) if from_here.startswith("..") else from_here
