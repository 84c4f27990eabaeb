"""fl-lab certs: an authority of one's own, and certificates for a server and its devices."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from edgeflock.common import extras
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.server.admission import CLIENT_ID


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME",
    help="A name or an IP address that clients dial; all go into one certificate. Repeatable.",
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
    """Make certificates for fl-server and fl-client in DIR.

    The authority is made with the first call and used again by the next ones.
    Its key stays on this machine; a device gets ca.pem, its own certificate and its own key.
    """
    extras.require("this command", "cryptography")
    from edgeflock.lab.authority import Authority  # brings a library that nothing else needs

    if not servers and not clients:
        raise UsageError("nothing to make: give --server NAME or --client ID")
    for name in clients:
        if not CLIENT_ID.fullmatch(name) or not name.strip("."):
            raise BadValue(
                "--client", name, "a client id: 1 to 64 letters, digits, dots, dashes, underscores"
            )
    authority = Authority.open(folder, timedelta(days=days))
    made = [authority.server(servers)] if servers else []
    made += [authority.client(name) for name in clients]
    click.echo(f"authority    {authority.path}")
    for pair in made:
        click.echo(f"certificate  {pair.certificate}   key {pair.key}   valid until {pair.ends:%Y-%m-%d}")
