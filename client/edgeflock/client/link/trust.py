"""Whom a client trusts: the credentials of its channel, and in words why no trusted connection came about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import grpc

from edgeflock.client.config import ClientConfig, addresses
from edgeflock.common.wire.address import Address
from edgeflock.common.wire.tls import Pair, read_authority, read_pair, system_authorities

_CLOCK = "it has to be renewed, unless this device's clock is wrong: it says"
_UNKNOWN = "no authority that this client trusts vouches for its certificate: see --tls-ca"
# What gRPC says of a handshake that failed, and what it means; the first that fits counts.
_PASSING = {
    "certificate has expired": f"the server's certificate has expired: {_CLOCK}",
    "certificate is not yet valid": f"the server's certificate is not valid yet: {_CLOCK}",
}
_WRONG = {
    "is not in peer certificate": "its certificate is for another name than {host}: dial a name that it has",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: give fl-server --tls-cert, or leave --tls away here",
    "CERTIFICATE_VERIFY_FAILED": _UNKNOWN,
    "certificate signature failure": _UNKNOWN,
}
_CLOSED = "Socket closed"
_JOIN_FILE = "or --config with this device's join file"
_PLAIN = f"if it speaks TLS, give --tls-ca, {_JOIN_FILE}"
_CERTLESS = f"it may ask for a certificate: give --tls-cert and --tls-key, {_JOIN_FILE}"
_UNVOUCHED = "the authority of its --tls-client-ca may be another than that of --tls-cert"


@dataclass(frozen=True)
class Trust:
    """What proves the server to the client, and the client to the server."""

    address: Address
    tls: bool = False
    authority: bytes | None = None  # None: those that gRPC brings along
    pair: Pair | None = None

    @classmethod
    def of(cls, config: ClientConfig) -> Trust:
        """Read the files that the configuration names; raises UsageError with a sentence."""
        address, authority = addresses(config)[0], read_authority(config.tls_ca, "--tls-ca")
        if config.tls and authority is None:
            authority = system_authorities()
        return cls(address, config.tls, authority, read_pair(config.tls_cert, config.tls_key))

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials of a channel; None for plain text."""
        if not self.tls:
            return None
        key, chain = (self.pair.key, self.pair.certificate) if self.pair else (None, None)
        return grpc.ssl_channel_credentials(self.authority, key, chain)

    def passing(self, details: str) -> str:
        """Return why a handshake failed if that may pass: a date, which a renewal or a set clock mends."""
        now = datetime.now(UTC)
        for said, words in _PASSING.items():
            if said in details:
                return f"{words} {now:%Y-%m-%d %H:%M} UTC"
        outdated = self.pair.outdated(now) if self.pair and _CLOSED in details else ""
        return f"--tls-cert {outdated}: {_CLOCK} {now:%Y-%m-%d %H:%M} UTC" if outdated else ""

    def wrong(self, details: str) -> str:
        """Return what was configured wrongly, as far as gRPC's words tell; empty if they do not."""
        found = next((words for said, words in _WRONG.items() if said in details), "") if self.tls else ""
        return found.format(host=self.address.host)

    def hint(self, details: str) -> str:
        """Return what a server may have meant that closes a connection before the first answer."""
        if _CLOSED not in details:
            return ""
        meant = (_UNVOUCHED if self.pair else _CERTLESS) if self.tls else _PLAIN
        return f" ({meant})"
