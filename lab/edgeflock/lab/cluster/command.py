"""fl-lab gates, as it is asked for: gates of a server on the machines of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command import flags, signals
from edgeflock.common.errors import UsageError
from edgeflock.lab.cluster.asked import read_on
from edgeflock.server.gate.config import GateConfig

_HELP = """Keep gates of an fl-server on the machines of a Ray cluster, until Ctrl-C.

Takes every option of fl-gate; files are paths on every node, as the secrets in them go by no cluster.
A gate that ends is started again, and elsewhere when its node goes.
"""
_GUIDE = flags.Guide(
    examples=(
        (
            "four gates of fl-server --gate-listen :9299 --gate-key /etc/edgeflock/key",
            "fl-lab gates --on ray --count 4 --coordinator host:9299 --key /etc/edgeflock/key \\\n"
            "             --coordinator-ca ca.pem --tls-cert gate.pem --tls-key gate-key.pem",
        ),
    ),
    first=("on", "count", "coordinator", "key"),
)
_WHERE = "Where"
_CLUSTER = (
    flags.GroupedOption(
        ["--on"],
        group=_WHERE,
        metavar="ray[=HOST:PORT]",
        default="ray",
        show_default=True,
        help="the cluster",
    ),
    flags.GroupedOption(
        ["--count"],
        group=_WHERE,
        metavar="N",
        type=click.IntRange(1, 1000),
        help="how many  [default: one for each node with a core]",
    ),
)


def _run(given: Mapping[str, Any], on: str, count: int | None) -> int:
    if given.get("key") is None:
        raise UsageError("--key has to be said: the file of fl-server's --gate-key, as it lies on every node")
    if given.get("name") is not None:
        raise UsageError("--name is one gate's: they are called ray0, ray1 ...")
    from edgeflock.lab.cluster.errand import taken_along
    from edgeflock.lab.cluster.gates import Post, keep
    from edgeflock.lab.cluster.joining import joined

    whole = {name: value.absolute() if isinstance(value, Path) else value for name, value in given.items()}
    with joined(read_on(on), bool(given.get("insecure"))) as cluster:
        signals.on_leaving(signals.interrupt)
        nodes = sum(node.holds(1.0, 0.0, 0) > 0 for node in cluster.nodes())
        posts = [
            Post(
                name=f"ray{number}",
                arguments=tuple(flags.to_arguments(GateConfig, whole)),
                listens="listen" in given,
                typed_in=str(Path.cwd()),
                environ=taken_along(),
                home=cluster.here,
            )
            for number in range(count or max(1, nodes))
        ]
        keep(cluster, posts, click.echo)
    return 0


gates = flags.command("fl-lab gates", _HELP, {GateConfig: "FL_GATE"}, _run, _GUIDE, _CLUSTER)
