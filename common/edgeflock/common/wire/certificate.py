"""What a certificate says of itself: its dates and whose it is, read from its DER without a library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_COMMON_NAME = bytes.fromhex("550403")
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_NAMES = (0x81, 0x82, 0x86)  # of an alternative name: mail, host, URI


@dataclass(frozen=True)
class Certificate:
    """Of the fields of a certificate those that matter here."""

    begins: datetime
    ends: datetime
    names: tuple[str, ...]  # the common name first, then the alternative ones


def read(der: bytes) -> Certificate:
    """Return what a certificate says; raises ValueError if it is none."""
    try:
        fields = [field for field in _parts(_inner(_inner(der))) if field[0] != _VERSION]
        _, _, _, (_, validity), (_, subject), *rest = fields  # serial, algorithm, issuer, ...
        begins, ends = (_date(digits) for _, digits in _parts(validity))
        names = (*_common_names(subject), *_alternative_names(dict(rest).get(_EXTENSIONS, b"")))
        return Certificate(begins, ends, names)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"no certificate: {error}") from None


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of what stands one behind the other."""
    while content:
        tag, size, begin = content[0], content[1], 2
        if size & 0x80:
            begin += size & 0x7F
            size = int.from_bytes(content[2:begin])
        if len(content) < begin + size:
            raise ValueError("it is cut")
        yield tag, content[begin : begin + size]
        content = content[begin + size :]


def _inner(content: bytes) -> bytes:
    """Return the content of the first part."""
    for _, inner in _parts(content):
        return inner
    raise ValueError("it is empty")


def _common_names(subject: bytes) -> Iterator[str]:
    for _, group in _parts(subject):
        for _, pair in _parts(group):
            (_, kind), (_, value) = _parts(pair)
            if kind == _COMMON_NAME:
                yield value.decode("utf-8", "replace")


def _alternative_names(extensions: bytes) -> Iterator[str]:
    for _, extension in _parts(_inner(extensions) if extensions else b""):
        (_, kind), *_, (_, value) = _parts(extension)
        if kind == _ALTERNATIVE_NAMES:
            yield from (name.decode() for tag, name in _parts(_inner(value)) if tag in _NAMES)


def _date(digits: bytes) -> datetime:
    """Read UTCTime (until 2049) or GeneralizedTime."""
    form = "%y%m%d%H%M%SZ" if len(digits) == 13 else "%Y%m%d%H%M%SZ"
    return datetime.strptime(digits.decode(), form).replace(tzinfo=UTC)
