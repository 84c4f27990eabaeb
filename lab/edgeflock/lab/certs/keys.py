"""A key that stays on its machine, and the request by which somebody else vouches for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from edgeflock.lab.certs.authority import put


def make_request(ids: Sequence[str], path: Path) -> bytes:
    """Make the key of a process that hosts these clients, and return what asks for its certificate."""
    key = generate_private_key(SECP256R1())
    put(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ids[0])])
    names = x509.SubjectAlternativeName([x509.DNSName(client) for client in ids])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name).add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
