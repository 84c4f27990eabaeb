"""TLS: certificates and keys as the operator gives them, looked at before anything is started."""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from edgeflock.common.command.kinds import Pem
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.wire import certificate as der

Source: TypeAlias = "Path | Pem"  # a file, or what it would hold

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_LARGEST = 1 << 20  # bytes of a file


@dataclass(frozen=True)
class Pair:
    """A certificate, followed by those that vouch for it, and its private key; both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    begins: datetime
    ends: datetime
    names: tuple[str, ...]  # whose it is

    def outdated(self, now: datetime) -> str:
        """Return what is wrong with its dates at that time, in words; empty if nothing is."""
        if now > self.ends:
            return f"has expired on {self.ends:%Y-%m-%d %H:%M} UTC"
        return f"is not valid before {self.begins:%Y-%m-%d %H:%M} UTC" if now < self.begins else ""


def read_pair(certificate: Source | None, key: Source | None) -> Pair | None:
    """Return the pair of --tls-cert and --tls-key, None if neither is given; raises UsageError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key go together: one of them is not given")
    chain, secret = _read(certificate, "--tls-cert"), _read(key, "--tls-key")
    first = _BLOCK.search(chain.decode("ascii", "replace"))
    if first is None:
        raise BadValue("--tls-cert", str(certificate), "a PEM file with a certificate")
    _match(certificate, key, chain, secret)
    said = _said(first[0])
    return Pair(chain, secret, said.begins, said.ends, said.names)


def read_authority(path: Source | None, flag: str) -> bytes | None:
    """Return the certificates of the authorities in a PEM file; raises UsageError."""
    if path is None:
        return None
    text = _read(path, flag)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise BadValue(flag, str(path), "a PEM file with certificates") from None
    return text


def system_authorities() -> bytes | None:
    """Return the certificates of the authorities that this system trusts (or SSL_CERT_FILE names).

    None where they lie one by one in a folder: gRPC then takes those that it brings along.
    """
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode() or None


def _read(path: Source, flag: str) -> bytes:
    if isinstance(path, Pem):
        return path.text.encode()
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise UsageError(f"{flag} {str(path)!r} cannot be read: {error.strerror}") from None


def _match(certificate: Source, key: Source, chain: bytes, secret: bytes) -> None:
    """Raise UsageError unless the key is that of the certificate."""
    if b"ENCRYPTED" in secret:
        raise BadValue("--tls-key", str(key), "a key without a password: a daemon cannot be asked for one")
    try:
        with _file(certificate, chain) as first, _file(key, secret) as second:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(first, second)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"--tls-key {str(key)!r} is not the key of --tls-cert {str(certificate)!r}"
            ) from None
        raise BadValue("--tls-key", str(key), "a PEM file with the private key of --tls-cert") from None


@contextmanager
def _file(source: Source, content: bytes) -> Iterator[str]:
    """Give what was read as a file for its owner alone: the system's library takes no bytes."""
    if isinstance(source, Path):
        yield str(source)
        return
    with tempfile.TemporaryFile() as file:  # without a name: a kill leaves no key behind
        file.write(content)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _said(block: str) -> der.Certificate:
    """Return what a certificate says of itself; raises UsageError."""
    try:
        return der.read(ssl.PEM_cert_to_DER_cert(block))
    except ValueError:
        raise UsageError("--tls-cert says in no known way whose it is, and from when until when") from None
