"""fl-server: the command that serves one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from edgeflock.common import log
from edgeflock.common.entry import run_command
from edgeflock.common.flags import command
from edgeflock.server.config import ServerConfig

_HELP = """Serve one federated training run to its end.

Clients connect to --listen; everything of the run lies in its run directory.
Started again on the directory of an unfinished run, it resumes it.
"""


def _run(given: Mapping[str, Any], help_method: bool) -> int:
    if help_method:
        from edgeflock.server.describe import describe_method

        click.echo(describe_method(given.get("method", "fedavg")))
        return 0
    from edgeflock.server.resolve import combine

    config = combine(given)
    log.configure(config.log_level, config.log_format)
    from edgeflock.server.daemon import run

    return run(config)


def build() -> click.Command:
    """Return the click command."""
    show = click.Option(["--help-method"], is_flag=True, help="Show the options of --method and exit.")
    return command("fl-server", _HELP, {ServerConfig: "FL_SERVER"}, _run, (show,))


def main() -> None:
    """Run `fl-server` and exit."""
    run_command(build(), "fl-server")
