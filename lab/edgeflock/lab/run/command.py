"""fl-lab run, as it is asked for: what it says of itself is there before what it works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeflock.common.command import flags
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


def _run(given: Mapping[str, Any], lab: Mapping[str, Any]) -> int:
    nursery = Nursery.open("fl-client")  # it imports while we look at what is asked
    from edgeflock.lab.run.experiment import run

    return run(given, lab, nursery)


command = flags.command("fl-lab run", _HELP, {ServerConfig: "FL_SERVER", LabConfig: "FL_LAB"}, _run, _GUIDE)
