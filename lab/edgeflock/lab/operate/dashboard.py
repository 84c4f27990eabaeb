"""fl-lab dashboard: show a run to browsers, whatever its state."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException
from pathlib import Path

import click

from edgeflock.common.wire.address import parse_address
from edgeflock.lab import history
from edgeflock.lab.history import History
from edgeflock.lab.operate import at_rest
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.web.standing import USUAL, claimed, standing

_ANSWER_S = 2.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--dashboard",
    "address",
    metavar="ADDRESS",
    help=f"Where browsers find it; port 0 takes a free one.  [default: {USUAL}, else a free port]",
)
@click.option(
    "--dashboard-insecure",
    "insecure",
    is_flag=True,
    help="Let everybody who reaches it beyond this machine read it.",
)
@click.option(
    "--dashboard-host",
    "hosts",
    default="",
    metavar="NAME,NAME...",
    help="With --dashboard-insecure: answer who asks for it by one of these names or localhost, not by any.",
)
def dashboard(run: Path, address: str | None, insecure: bool, hosts: str) -> int:
    """Show the run in RUN, a run directory, to browsers: going on, over, or left by its server.

    Of a run whose server shows it already it says where; any other one it shows itself, until Ctrl-C.
    """
    found = history.read(run)
    served = found.ending is None and rundir.is_served(run)
    if served and address is None and (there := of_its_server(found)):
        click.echo(f"{run} is going on, and its server shows it at {there}")
        return 0
    listener, place = claimed(address, insecure)
    with standing(run, listener, place, filter(None, hosts.split(",")), insecure=insecure) as board:
        click.echo(_state(found, served))
        click.echo(f"dashboard at {board.url} until Ctrl-C")
        board.wait()
    return 0


def of_its_server(found: History) -> str | None:
    """Return where the run's own dashboard answers, if one does: what answers there may be another run's."""
    address = rundir.read_small(found.run_dir / rundir.DASHBOARD)
    if not address:
        return None
    url = f"http://{parse_address(address, rundir.DASHBOARD).from_here.target}/"
    try:
        with urllib.request.urlopen(f"{url}metrics", timeout=_ANSWER_S) as answer:
            return url if found.run_id.encode() in answer.read() else None
    except (OSError, HTTPException):  # nobody, or somebody who does not speak HTTP
        return None


def _state(found: History, served: bool) -> str:
    run_dir, rounds = found.run_dir, f"{len(found.training)} of {found.config.rounds} rounds"
    if found.ending is not None:
        return f"{run_dir} is over, {at_rest.ending(found)}"
    if served:
        return f"{run_dir} is going on, {rounds} are done"
    going_on = at_rest.how_to_go_on(run_dir)
    return f"{run_dir} is not over, {rounds} are done, but its server is not running: {going_on} goes on"
