"""The join file of a device: everything that fl-client needs to take part, in one file of options."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from edgeflock.common.errors import BadValue
from edgeflock.common.wire.address import Address, parse_address
from edgeflock.lab.certs.authority import Made, put

PORT = 9300
_ADDRESS = "address"  # in the authority's folder: where the devices of later calls dial


def dialled(text: str) -> Address:
    """Read a server's name as clients dial it, NAME or NAME:PORT; raises BadValue."""
    try:
        return Address(str(ipaddress.ip_address(text)), PORT)
    except ValueError:
        pass
    address = parse_address(text if ":" in text else f"{text}:{PORT}", "--server")
    if address.path or text.startswith(":"):
        raise BadValue("--server", text, "a host name or an IP address, with :PORT if that is not 9300")
    return address


def remember(folder: Path, servers: list[Address]) -> None:
    """Keep where the server is dialled, for devices that come later."""
    put(folder / _ADDRESS, "".join(f"{server.target}\n" for server in servers).encode(), 0o644)


def recall(folder: Path) -> list[Address]:
    """Return where the server is dialled, nothing if no call has said it."""
    path = folder / _ADDRESS
    lines = path.read_text("utf-8").split() if path.exists() else []
    return [parse_address(line, str(path)) for line in lines]


def write(folder: Path, client_id: str, made: Made, servers: list[Address]) -> Path:
    """Write a device's join file, for its owner alone; return where it lies."""
    path = folder / f"{client_id}.toml"
    put(path, _text(client_id, made, folder / "ca.pem", servers).encode(), 0o600)
    return path


def _text(client_id: str, made: Made, authority: Path, servers: list[Address]) -> str:
    first, *others = [f'server = "{server.target}"' for server in servers] or ['# server = "HOST:9300"']
    return "\n".join(
        [
            f"# Join file of {client_id}, valid until {made.ends:%Y-%m-%d}; on the device:",
            f"#   fl-client --config {client_id}.toml",
            "# It holds the device's private key: keep it as one.",
            f'id = "{client_id}"',
            first,
            *(f"# or {other}" for other in others),
            _pem("tls_ca", authority),
            _pem("tls_cert", made.certificate),
            _pem("tls_key", made.key),
        ]
    )


def _pem(name: str, path: Path) -> str:
    return f"{name} = '''\n{path.read_text('ascii')}'''\n"
