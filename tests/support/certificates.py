"""Certificates of tests: made by the product's own authority, for this machine's loopback address."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from edgeflock.lab.certs.authority import Authority

HERE = ("127.0.0.1", "localhost")
VALID = timedelta(days=90)
EXPIRED = timedelta(minutes=-30)  # they begin an hour ago


@dataclass(frozen=True)
class Set:
    """Files of an authority, a server and devices in one folder."""

    folder: Path

    @property
    def server(self) -> tuple[str, ...]:
        """Flags of a server."""
        return (f"--tls-cert={self.folder / 'server.pem'}", f"--tls-key={self.folder / 'server-key.pem'}")

    @property
    def demanding(self) -> tuple[str, ...]:
        """Flags of a server that asks for certificates."""
        return (*self.server, f"--tls-client-ca={self.folder / 'ca.pem'}")

    @property
    def trusting(self) -> tuple[str, ...]:
        """Flags of a client that trusts the authority."""
        return (f"--tls-ca={self.folder / 'ca.pem'}",)

    def proving(self, name: str) -> tuple[str, ...]:
        """Flags of a client that shows a certificate, too."""
        pair = (self.folder / f"client-{name}.pem", self.folder / f"client-{name}-key.pem")
        return (*self.trusting, f"--tls-cert={pair[0]}", f"--tls-key={pair[1]}")


def make(folder: Path, *clients: str, names: tuple[str, ...] = HERE, valid: timedelta = VALID) -> Set:
    """Make an authority, the certificate of a server with these names, and those of clients."""
    authority = Authority.open(folder, valid)
    authority.server(names)
    for name in clients:
        authority.client(name)
    return Set(folder)
