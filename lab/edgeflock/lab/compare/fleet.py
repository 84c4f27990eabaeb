"""fl-lab fleet: the cells of a grid one after the other on devices that stay, each a server they dial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command import signals
from edgeflock.common.command.kinds import FLAG
from edgeflock.common.command.options import public
from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import parse_address, require_trust
from edgeflock.common.wire.tls import read_pair
from edgeflock.lab.compare.command import FULL, build, read
from edgeflock.lab.grid.grid import Cell
from edgeflock.server.config import ServerConfig

_FILE = click.Path(path_type=Path)
_TRANSPORT = ("tls_cert", "tls_key", "tls_client_ca", "insecure")


def _fleet(grid: Path, out: Path | None, listen: tuple[str, ...], full: bool, **asked: Any) -> int:
    """Run the cells of a grid on a fleet of devices, and put what came of them side by side.

    Every device runs `fl-client --server HOST:PORT --stay` all the time: each cell is an fl-server at that
    address, one after the other. With --listen several times as many cells are held at a time, each on the
    devices that dial its address. Started again it keeps the cells that have finished and goes on with the
    others; devices that restart come back to the cell that is held.
    """
    out = out or Path("runs") / f"fleet-{grid.stem}"
    place = {name: value for name in _TRANSPORT if (value := asked.pop(name)) not in (None, False)}
    certified = read_pair(place.get("tls_cert"), place.get("tls_key")) is not None
    safe = certified or "insecure" in place
    for address in listen:
        there = parse_address(
            address, "--listen", everywhere=safe
        )  # with port 0 nobody would know where to dial
        require_trust(there, "--listen", safe, "--tls-cert and --tls-key")
        if listen.count(address) > 1:
            raise UsageError(f"--listen {address} is given twice: an address is of one run at a time")
    table, made, figures = read(grid, **asked)
    from edgeflock.lab.compare.cells import Here, Lane
    from edgeflock.lab.compare.comparison import Comparison

    _check(made.cells, str(grid))
    signals.on_leaving(signals.interrupt)
    lanes = [Lane("fl-server", {**place, "listen": address}) for address in listen]
    comparison = Comparison(made, out, len(lanes), figures, Here(lanes))
    comparison.run(table)
    return comparison.tell(full=full)


def _check(cells: Sequence[Cell], where: str) -> None:
    """Refuse what is for clients that the lab starts, and what --listen says."""
    for cell in cells:
        if name := next(iter(cell.lab), ""):
            raise UsageError(f"{name} in {where}: the devices come by themselves")
        if "listen" in cell.given:
            raise UsageError(f"listen in {where}: --listen says where the devices dial")


def _options() -> Iterator[click.Parameter]:
    words = "Where devices dial; several times: as many cells at a time, each on the devices of its own."
    yield click.Option(["--listen"], multiple=True, required=True, metavar="HOST:PORT", help=words)
    for entry in public(ServerConfig):
        if entry.name in _TRANSPORT:
            kind: dict[str, Any] = {"is_flag": True} if entry.kind is FLAG else {"type": _FILE}
            yield click.Option(
                [entry.flag], metavar=entry.metavar or None, help=f"As of fl-server: {entry.help}.", **kind
            )


fleet = build("fleet", _fleet, [*_options()], FULL)
