"""The server's certificate: its credentials, a watch over its dates, and whose a client's certificate is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import grpc

from edgeflock.common.errors import UsageError
from edgeflock.common.wire.tls import Pair, read_authority, read_pair

_LOOK_EVERY_S = 5.0
_SOON = timedelta(days=14)
_REMEDY = "renew it and start the server again, nothing is lost"


@dataclass(frozen=True)
class Certificates:
    """What proves the server to clients, and the authority that vouches for theirs."""

    pair: Pair
    clients: bytes | None

    def credentials(self) -> grpc.ServerCredentials:
        pairs = [(self.pair.key, self.pair.certificate)]
        return grpc.ssl_server_credentials(pairs, self.clients, require_client_auth=self.clients is not None)

    def alone(self) -> grpc.ServerCredentials:
        """The server's alone, for who proves itself otherwise."""
        return grpc.ssl_server_credentials([(self.pair.key, self.pair.certificate)])

    @property
    def words(self) -> str:
        """What the log says of how clients talk to this server."""
        return "tls, with certificates of clients" if self.clients else "tls"


class Secured(Protocol):
    """A configuration that says how clients are talked to."""

    @property
    def tls_cert(self) -> Path | None: ...
    @property
    def tls_key(self) -> Path | None: ...
    @property
    def tls_client_ca(self) -> Path | None: ...
    @property
    def insecure(self) -> bool: ...


def read(config: Secured) -> Certificates | None:
    """Return what the configuration names, None for plain text; raises UsageError with a sentence."""
    pair = read_pair(config.tls_cert, config.tls_key)
    clients = read_authority(config.tls_client_ca, "--tls-client-ca")
    if pair is None:
        if clients is not None:
            raise UsageError("--tls-client-ca needs --tls-cert and --tls-key")
        return None
    if config.insecure:
        raise UsageError("--insecure is for plain text: it contradicts --tls-cert")
    if outdated := pair.outdated(now := datetime.now(UTC)):
        clock = f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
        raise UsageError(f"--tls-cert {str(config.tls_cert)!r} {outdated}, and {clock}")
    return Certificates(pair, clients)


def notice(pair: Pair, now: datetime) -> str:
    """Return what the operator should know of the certificate's dates; empty if there is nothing."""
    if outdated := pair.outdated(now):
        return f"{outdated}: no client can connect any more; {_REMEDY}"
    return f"ends on {pair.ends:%Y-%m-%d %H:%M} UTC: {_REMEDY}" if pair.ends - now < _SOON else ""


async def watch(pair: Pair, tell: Callable[[str], None]) -> None:
    """Tell every notice once, for as long as this runs."""
    told = {""}
    while True:
        said = notice(pair, datetime.now(UTC))
        if said not in told:
            told.add(said)
            tell(said)
        await asyncio.sleep(_LOOK_EVERY_S)


def allow(names: Iterable[str], client_id: str) -> bool:
    """Whether a certificate of these names is for that id, or for the host of it."""
    return any(re.fullmatch(rf"{re.escape(name)}(-\d+)?", client_id) for name in names)


def names_of(context: grpc.aio.ServicerContext[Any, Any]) -> list[str]:
    """Return the names in a client's certificate, as gRPC has seen it."""
    seen = context.auth_context()
    found = [*seen.get("x509_common_name", ()), *seen.get("x509_subject_alternative_name", ())]
    return [name.decode("utf-8", "replace") for name in found]
