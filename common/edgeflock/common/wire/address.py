"""Network addresses as people write them: host:port, [IPv6]:port, a port alone, unix:path."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from edgeflock.common.errors import BadValue, UsageError

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_WORDS = "host:port, [IPv6 address]:port, a port of this machine or unix:path"
_HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"
_LOOPBACK_OF = {EVERYWHERE: _HERE, "::": "::1"}


@dataclass(frozen=True)
class Address:
    """A place to listen at or to dial; a Unix socket has a path and no host."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def local(self) -> bool:
        """Whether nothing beyond this machine can be at the other end."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def target(self) -> str:
        """The address as gRPC takes it."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def everywhere(self) -> bool:
        """Whether it is every interface of this machine: a place to listen at and none to dial."""
        return self.host in _LOOPBACK_OF

    @property
    def from_here(self) -> Address:
        """What is dialled on this machine."""
        return self.with_host(_LOOPBACK_OF.get(self.host, self.host))

    def with_host(self, host: str) -> Address:
        return replace(self, host=host)

    def with_port(self, port: int) -> Address:
        return replace(self, port=port)


def parse_address(text: str, field: str, *, any_port: bool = False, everywhere: bool = False) -> Address:
    """Read an address; port 0 (the system's choice) only with `any_port`.

    A port alone is one of this machine; so is `:port`, but `everywhere` makes that one of all its interfaces.
    Raises BadValue with a sentence.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return Address(path=text.removeprefix("unix:"))
    scheme, slashes, _ = text.partition("://")
    if slashes:
        raise BadValue(field, text, f"{_WORDS}, without {scheme}://")
    host, colon, digits = text.rpartition(":")
    host = host or (EVERYWHERE if colon and everywhere else _HERE)
    if not re.fullmatch(r"\d{1,5}", digits, re.ASCII) or not (host := _host(host)):
        raise BadValue(field, text, _WORDS)
    low = 0 if any_port else 1
    if not low <= int(digits) <= 65535:
        raise BadValue(field, text, f"a port from {low} to 65535")
    return Address(host, int(digits))


def _host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            return ""
    return text if _HOST.fullmatch(text) else ""


def require_trust(address: Address, field: str, said: bool, remedy: str) -> None:
    """Refuse plain text beyond this machine unless the operator has `said` how to be sure or not to care."""
    if not address.local and not said:
        raise UsageError(
            f"{field} {address.target} reaches beyond this machine without encryption: give {remedy}, "
            "a loopback address, or --insecure if every machine of that network is trusted"
        )
