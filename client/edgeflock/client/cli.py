"""fl-client: the command that takes part in a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import click

from edgeflock.client.config import ClientConfig, resolve
from edgeflock.client.console import Console
from edgeflock.common import log
from edgeflock.common.entry import run_command
from edgeflock.common.flags import command

_HELP = """Take part in the run that fl-server serves, until it is over.

Reconnects by itself and goes on where it was, also after a power cut.
One process can host several clients; each keeps its own name, data and state.
"""


def _run(given: Mapping[str, Any]) -> int:
    config = resolve(ClientConfig(**given))
    with closing(Console()) as console:
        log.configure(config.log_level, config.log_format, console.tell)
        if log.for_people(config.log_format):
            console.begin()
        from edgeflock.client.daemon import run

        return run(config, console)


def build() -> click.Command:
    """Return the click command."""
    return command("fl-client", _HELP, {ClientConfig: "FL_CLIENT"}, _run)


def main() -> None:
    """Run `fl-client` and exit."""
    run_command(build(), "fl-client")
