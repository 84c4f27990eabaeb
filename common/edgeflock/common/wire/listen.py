"""Where the dashboard listens: the addresses that are allowed, and the socket, bound before the run."""

from __future__ import annotations

import socket

from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.wire.address import Address, parse_address

OFF = "off"
_FLAG = "--dashboard"
_BACKLOG = 64


def listen_at(text: str | None, insecure: bool) -> Address | None:
    """Return where to listen, or None for no dashboard. Raises UsageError with a sentence."""
    if text is None or text == OFF:
        return None
    address = parse_address(text, _FLAG, any_port=True, everywhere=insecure)
    if address.path:
        raise BadValue(_FLAG, text, f"host:port, [IPv6 address]:port, a port of this machine or {OFF}")
    if not address.local and not insecure:
        raise UsageError(
            f"{_FLAG} {address.target} reaches beyond this machine, without encryption or password: give a "
            "loopback address (and an SSH tunnel), or --dashboard-insecure if all may read who trains here"
        )
    extras.require(_FLAG, "aiohttp", "prometheus_client")
    return address


def bound(address: Address, before: str) -> tuple[socket.socket, Address]:
    """Return a listening socket and its address; a free port is the one of before, if nobody has it.

    Raises UsageError with a sentence.
    """
    if not address.port and before:
        known = address.with_port(parse_address(before, _FLAG).port)
        try:
            return listening(known)
        except OSError:
            pass  # another process has it now: viewers find the new one in the log
    try:
        return listening(address)
    except OSError as error:
        raise UsageError(f"{_FLAG} {address.target} cannot be bound: {error.strerror or error}") from None


def listening(address: Address) -> tuple[socket.socket, Address]:
    """Return a socket that listens, and where. Raises OSError."""
    family, kind, protocol, _, place = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # viewers of before may linger
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener, address.with_port(int(listener.getsockname()[1]))
