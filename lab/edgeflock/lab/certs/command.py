"""fl-lab certs: an authority of one's own, and certificates for a server and its devices."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeflock.common.client_id import WORDS, is_client_id
from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue, UsageError

if TYPE_CHECKING:
    from edgeflock.lab.certs.authority import Made


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME",
    help="A name or an IP address that clients dial, with :PORT if that is not 9300; all go into one "
    "certificate, the first into join files. Repeatable.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="ID",
    help="A device's id; the certificate of host0 is good for host0-0, host0-1, ..., too. Repeatable.",
)
@click.option("--days", type=click.IntRange(1, 36500), default=365, help="How long they are valid.")
def certs(folder: Path, servers: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Make certificates for fl-server and join files for fl-client in DIR.

    The authority is made with the first call and used again by the next ones.
    Its key stays on this machine. A device ID gets ID.toml, which holds all that it needs:
    fl-client --config ID.toml
    """
    extras.require("this command", "cryptography")
    from edgeflock.lab.certs import join_file
    from edgeflock.lab.certs.authority import Authority  # brings a library that nothing else needs

    if not servers and not clients:
        raise UsageError("nothing to make: give --server NAME or --client ID")
    for name in clients:
        if not is_client_id(name):
            raise BadValue("--client", name, f"a client id: {WORDS}")
    dialled = [join_file.dialled(name) for name in servers]
    authority = Authority.open(folder, timedelta(days=days))
    click.echo(f"authority    {authority.path}")
    if dialled:
        _say(authority.server([server.host for server in dialled]))
        join_file.remember(folder, dialled)
    for name in clients:
        made = authority.client(name)
        _say(made)
        click.echo(f"join file    {join_file.write(folder, name, made, join_file.recall(folder))}")
    if clients and not join_file.recall(folder):
        click.echo("the join files name no server: give fl-client --server, or make them again with --server")


def _say(made: Made) -> None:
    click.echo(f"certificate  {made.certificate}   key {made.key}   valid until {made.ends:%Y-%m-%d}")
