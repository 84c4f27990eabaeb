"""fl-lab run, as it is asked for: what it says of itself is there before what it works with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command import flags
from edgeflock.common.errors import UsageError
from edgeflock.lab.cluster.asked import read_on
from edgeflock.lab.nursery import Nursery
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.hints import explain

_HELP = """Run a server and its clients on this machine, to the end.

Takes every option of fl-server, which gets a free port unless --listen is given.
The clients are c0, c1, ... whatever the number of processes, so that the result is the same.
Logs lie in the run directory, under logs/.
"""
_GUIDE = flags.Guide(
    examples=(
        ("a first run, and what it cost", "fl-lab run --method fedavg --clients 4 --rounds 20"),
        (
            "skewed data, until the model is good enough",
            "fl-lab run --method fedprox --set mu=0.1 --partition dirichlet:0.3 \\\n"
            "             --target accuracy=0.9",
        ),
        ("go on with a run, watched in a browser", "fl-lab run --run-dir runs/NAME --dashboard 8080"),
    ),
    first=("method", "set", "rounds", "clients", "dataset", "partition", "dashboard", "run_dir"),
    explain=explain,
)


def _run(given: Mapping[str, Any], lab: Mapping[str, Any], on: str | None, state_root: Path | None) -> int:
    if state_root and not on:
        raise UsageError("--state-root is for a cluster: give --on ray, too")
    if on is not None:
        return _on_cluster(given, lab, read_on(on), state_root)
    nursery = Nursery.open("fl-client")  # it imports while we look at what is asked
    from edgeflock.lab.run.experiment import run

    return run(given, lab, nursery)


def _on_cluster(
    given: Mapping[str, Any], lab: Mapping[str, Any], address: str, state_root: Path | None
) -> int:
    from edgeflock.lab.cluster.joining import joined
    from edgeflock.lab.run.experiment import run
    from edgeflock.lab.run.far import Far

    with joined(address, bool(given.get("insecure"))) as cluster:
        return run(given, lab, Nursery.open("fl-server"), Far(cluster, state_root and state_root.absolute()))


_OTHERS = "On other machines"
_CLUSTER = (
    flags.GroupedOption(
        ["--on"],
        group=_OTHERS,
        metavar="ray[=HOST:PORT]",
        help="hold the clients on the machines of a Ray cluster, the server on this one  [default: all here]",
    ),
    flags.GroupedOption(
        ["--state-root"],
        group=_OTHERS,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="on ray: a folder that all nodes see, for the state of clients  [default: each node's disk]",
    ),
)
command = flags.command(
    "fl-lab run", _HELP, {ServerConfig: "FL_SERVER", LabConfig: "FL_LAB"}, _run, _GUIDE, _CLUSTER
)
