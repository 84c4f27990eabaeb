"""fl-server: the command that serves one run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edgeflock.common.command import log
from edgeflock.common.command.entry import run_command
from edgeflock.common.command.flags import Guide, command
from edgeflock.common.plugins.loading import named
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.hints import explain

if TYPE_CHECKING:
    from edgeflock.server.console.console import ServerConsole

_HELP = """Serve one federated training run to its end.

Clients connect to --listen; everything of the run lies in its run directory.
Started again on the directory of an unfinished run, it resumes it.
"""
_GUIDE = Guide(
    examples=(
        ("for fl-client --server 127.0.0.1:9300, typed in four terminals", "fl-server --method fedmrur"),
        (
            "for two devices with data of their own and join files from fl-lab certs",
            "fl-server --listen :9300 --tls-cert certs/server.pem \\\n"
            "            --tls-key certs/server-key.pem --tls-client-ca certs/ca.pem \\\n"
            "            --eval-data test.npz --clients 2",
        ),
        ("go on with a run, with more rounds", "fl-server --run-dir runs/NAME --rounds 50"),
    ),
    first=("method", "set", "rounds", "clients", "dataset", "listen", "dashboard", "run_dir"),
    explain=explain,
)


def _run(given: Mapping[str, Any], help_method: bool) -> int:
    if help_method:
        from edgeflock.server.start.describe import describe_method

        click.echo(describe_method(named(given.get("method", "fedavg"))))
        return 0
    from edgeflock.server.console.console import ServerConsole

    with closing(ServerConsole()) as console:
        return _serve(given, console)


def _serve(given: Mapping[str, Any], console: ServerConsole) -> int:
    """Serve the run, in view of people or with a log of JSON lines."""
    if log.for_people(given.get("log_format", "auto")):
        console.begin()
    from edgeflock.server.start.resolve import combine

    config = combine(given)
    log.configure(config.log_level, config.log_format, console.tell)
    if log.for_people(config.log_format):
        console.serve(config)
    from edgeflock.server.daemon import run

    return run(config, console)


def build() -> click.Command:
    """Return the click command."""
    show = click.Option(["--help-method"], is_flag=True, help="Show the options of --method and exit.")
    return command("fl-server", _HELP, {ServerConfig: "FL_SERVER"}, _run, _GUIDE, (show,))


def main() -> None:
    """Run `fl-server` and exit."""
    run_command(build(), "fl-server")
