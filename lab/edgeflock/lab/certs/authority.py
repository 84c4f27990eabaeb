"""An authority of one's own: a root certificate in a folder, and what it vouches for beside it."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgeflock.common.errors import BadValue, UsageError

_ROOT = timedelta(days=3650)
_EARLIER = timedelta(hours=1)  # for devices whose clock is a little slow


@dataclass(frozen=True)
class Made:
    """A certificate and its key, on disk."""

    certificate: Path
    key: Path
    ends: datetime


class Authority:
    """Vouches for servers and devices."""

    def __init__(self, folder: Path, root: x509.Certificate, key: EllipticCurvePrivateKey, valid: timedelta):
        self._folder, self._root, self._key, self._valid = folder, root, key, valid
        self.path = folder / "ca.pem"

    @classmethod
    def open(cls, folder: Path, valid: timedelta) -> Authority:
        """Use the authority of a folder, or make one; raises UsageError."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (folder / "ca.pem").exists():
                _make_root(folder)
            return cls(folder, *_read_root(folder), valid)
        except OSError as error:
            raise UsageError(f"{str(folder)!r} cannot be used: {error.strerror}") from None

    def server(self, names: Sequence[str]) -> Made:
        """Make the certificate of a server that is dialled by these names."""
        san = x509.SubjectAlternativeName([_dialled(name) for name in names])
        return self._make("server", "server", ExtendedKeyUsageOID.SERVER_AUTH, san)

    def client(self, client_id: str) -> Made:
        """Make the certificate of a device."""
        return self._make(f"client-{client_id}", client_id, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def vouch(self, request: bytes) -> bytes:
        """Return a certificate for the clients whose key has signed a request."""
        asked = x509.load_pem_x509_csr(request)
        key = asked.public_key()
        if not asked.is_signature_valid or not isinstance(key, EllipticCurvePublicKey):
            raise UsageError("a request for a certificate is not signed by its own key")
        name = str(asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        made = self._signed(key, name, ExtendedKeyUsageOID.CLIENT_AUTH, names)
        return made.public_bytes(Encoding.PEM)

    def _make(
        self, file: str, name: str, use: x509.ObjectIdentifier, san: x509.SubjectAlternativeName | None
    ) -> Made:
        key = generate_private_key(SECP256R1())
        made = self._signed(key.public_key(), name, use, san)
        pair = Made(self._folder / f"{file}.pem", self._folder / f"{file}-key.pem", made.not_valid_after_utc)
        _write(pair, made, key)
        return pair

    def _signed(
        self,
        key: EllipticCurvePublicKey,
        name: str,
        use: x509.ObjectIdentifier,
        san: x509.SubjectAlternativeName | None,
    ) -> x509.Certificate:
        builder = _begun(name, self._root.subject, key, self._valid, authority=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if san is not None:
            builder = builder.add_extension(san, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _make_root(folder: Path) -> None:
    key = generate_private_key(SECP256R1())
    name = f"edgeflock authority {secrets.token_hex(4)}"  # no two are taken for each other
    builder = _begun(name, _named(name), key.public_key(), _ROOT, authority=True)
    root = builder.sign(key, hashes.SHA256())
    _write(Made(folder / "ca.pem", folder / "ca-key.pem", root.not_valid_after_utc), root, key)


def _read_root(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    try:
        root = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
        root.verify_directly_issued_by(root)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        raise UsageError(
            f"ca.pem and ca-key.pem in {str(folder)!r} are not an authority and its key"
        ) from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != root.public_key():
        raise UsageError(f"ca-key.pem in {str(folder)!r} is not the key of ca.pem")
    return root, key


def _begun(
    name: str, issuer: x509.Name, key: EllipticCurvePublicKey, valid: timedelta, *, authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _dialled(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise BadValue("--server", name, "a host name or an IP address") from None


def _write(pair: Made, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    put(pair.key, secret, 0o600)
    put(pair.certificate, certificate.public_bytes(Encoding.PEM), 0o644)


def put(path: Path, content: bytes, mode: int) -> None:
    """Write a file at once: nobody reads half of it, and a key never with another mode."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)
