"""TLS: certificates and keys as the operator's files hold them, looked at before anything is started."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from edgeflock.common.errors import BadValue, UsageError

# The two dates of a certificate, one behind the other: UTCTime until 2049, GeneralizedTime from 2050 on.
_DATES = re.compile(rb"(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z")
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_LARGEST = 1 << 20  # bytes of a file


@dataclass(frozen=True)
class Pair:
    """A certificate, followed by those that vouch for it, and its private key; both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    begins: datetime
    ends: datetime

    def outdated(self, now: datetime) -> str:
        """Return what is wrong with its dates at that time, in words; empty if nothing is."""
        if now > self.ends:
            return f"has expired on {self.ends:%Y-%m-%d %H:%M} UTC"
        return f"is not valid before {self.begins:%Y-%m-%d %H:%M} UTC" if now < self.begins else ""


def read_pair(certificate: Path | None, key: Path | None) -> Pair | None:
    """Return the pair of --tls-cert and --tls-key, None if neither is given; raises UsageError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key go together: one of them is not given")
    chain, secret = _read(certificate, "--tls-cert"), _read(key, "--tls-key")
    first = _BLOCK.search(chain.decode("ascii", "replace"))
    if first is None:
        raise BadValue("--tls-cert", str(certificate), "a PEM file with a certificate")
    _match(certificate, key, secret)
    return Pair(chain, secret, *_validity(ssl.PEM_cert_to_DER_cert(first[0])))


def read_authority(path: Path | None, flag: str) -> bytes | None:
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


def _read(path: Path, flag: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise UsageError(f"{flag} {str(path)!r} cannot be read: {error.strerror}") from None


def _match(certificate: Path, key: Path, secret: bytes) -> None:
    """Raise UsageError unless the key is that of the certificate."""
    if b"ENCRYPTED" in secret:
        raise BadValue("--tls-key", str(key), "a key without a password: a daemon cannot be asked for one")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"--tls-key {str(key)!r} is not the key of --tls-cert {str(certificate)!r}"
            ) from None
        raise BadValue("--tls-key", str(key), "a PEM file with the private key of --tls-cert") from None


def _validity(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when until when a certificate (DER) is valid."""
    found = _DATES.search(certificate)
    if found is None:
        raise UsageError("--tls-cert says in no known way from when until when it is valid")
    begins, ends = (short or long for short, long in (found.group(1, 2), found.group(3, 4)))
    return _date(begins), _date(ends)


def _date(digits: bytes) -> datetime:
    form = "%y%m%d%H%M%S" if len(digits) == 12 else "%Y%m%d%H%M%S"
    return datetime.strptime(digits.decode(), form).replace(tzinfo=UTC)
