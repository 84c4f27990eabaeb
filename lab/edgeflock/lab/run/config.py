"""How fl-lab run starts the clients, and RUN_DIR/lab.toml, which keeps it for whoever goes on or repeats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgeflock.common.command import settings_file
from edgeflock.common.command.kinds import INTEGER, NUMBER, TEXT
from edgeflock.common.command.options import option, read_toml
from edgeflock.common.command.ranges import Range, between
from edgeflock.server.files.run_dir import write_small

FILE = "lab.toml"
CLIENTS = "clients"
_MOST = 1024  # processes
_HEAD = "# how fl-lab run has started the clients: each process keeps their state\n"
_GROUP = "Processes of the lab"


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """How the clients are started."""

    processes: int | None = option(
        None,
        INTEGER,
        "client processes; fewer than clients makes each host several",
        group=_GROUP,
        allowed=between(1, _MOST, "an integer"),
        shown="one per client",
    )
    client_data: str | None = option(
        None,
        TEXT,
        "own data of the clients, e.g. file-{index}.npz: {index} is the client's number, {id} its name; "
        "or your own package.module:factory",
        group=_GROUP,
        metavar="SOURCE",
    )
    hold_out: float | None = option(
        None,
        NUMBER,
        "share of their data that clients keep for tests and do not train on, as fl-client --hold-out",
        group=_GROUP,
        allowed=Range(lambda share: 0 <= share < 1, "a share from 0 to below 1"),
        metavar="SHARE",
    )


def usual(clients: int) -> int:
    """Return how many processes so many clients have if nobody says."""
    return min(clients, _MOST)


def remember(run_dir: Path, config: LabConfig) -> None:
    """Write down how the clients are started. Raises EdgeflockError with a sentence if that cannot be."""
    write_small(run_dir / FILE, _HEAD + settings_file.lines(config))


def recall(run_dir: Path) -> LabConfig | None:
    """Return how fl-lab has started the clients of a run, None if it has not.

    Raises UsageError with a sentence if the file cannot be read.
    """
    path = run_dir / FILE
    found = settings_file.from_toml(LabConfig, read_toml(path), str(path)) if path.exists() else LabConfig()
    processes = found.processes or sum(folder.is_dir() for folder in (run_dir / CLIENTS).glob("*"))
    return replace(found, processes=processes) if processes else None
