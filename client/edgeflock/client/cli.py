"""fl-client: the command that takes part in a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import click

from edgeflock.client.config import ClientConfig, resolve
from edgeflock.common.command import log
from edgeflock.common.command.entry import run_command
from edgeflock.common.command.flags import Guide, command

_HELP = """Take part in the run that fl-server serves, until it is over.

Reconnects by itself and goes on where it was, also after a power cut.
One process can host several clients; each keeps its own name, data and state.
"""
_GUIDE = Guide(
    examples=(
        ("of a server on this machine; the same line again is another client", "fl-client --server :9300"),
        (
            "a device with the join file that fl-lab certs has made, and own data",
            "fl-client --config device-a.toml --data own.npz",
        ),
        ("four clients in one process: c-0, c-1, c-2, c-3", "fl-client --id c --host-clients 4"),
    ),
    first=("server", "config", "id", "data", "host_clients", "device", "stay", "state_dir"),
)


def _run(given: Mapping[str, Any]) -> int:
    config = resolve(ClientConfig(**given))
    from edgeflock.client.console import ClientConsole

    with closing(ClientConsole()) as console:
        log.configure(config.log_level, config.log_format, console.tell)
        if log.for_people(config.log_format):
            console.begin()
        from edgeflock.client.daemon import run

        return run(config, console)


def build() -> click.Command:
    """Return the click command."""
    return command("fl-client", _HELP, {ClientConfig: "FL_CLIENT"}, _run, _GUIDE)


def main() -> None:
    """Run `fl-client` and exit."""
    run_command(build(), "fl-client")
