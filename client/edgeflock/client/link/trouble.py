"""Why a server was not reached, in words: what gRPC says of it is for those who debug gRPC. Pure."""

from __future__ import annotations

import grpc

# What stands in gRPC's text, and what it means; the first that fits counts.
_MEANT = {
    "Connection refused": "connection refused",
    "No such file or directory": "there is no such socket",
    "No route to host": "there is no way to that host",
    "Network is unreachable": "the network cannot be reached",
    "Host is down": "that host is down",
    "DNS resolution failed": "no address is known for that name",
    "name resolution": "no address is known for that name",
    "Name or service not known": "no address is known for that name",
    "Permission denied": "this machine does not permit it",
    "Handshake": "the TLS handshake failed",
    "handshake": "the TLS handshake failed",
    "SSL": "the TLS handshake failed",
    "reset by peer": "the connection was reset",
    "Broken pipe": "the connection was cut",
    "ping timeout": "no answer",
    "keepalive": "no answer",
    "timed out": "no answer",
    "Timeout": "no answer",
    "Socket closed": "the connection was closed",
    "GOAWAY": "the connection was closed",
}
_CODES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer",
    grpc.StatusCode.UNAVAILABLE: "no connection",
    grpc.StatusCode.CANCELLED: "the connection was closed",
}


def in_words(error: grpc.aio.AioRpcError) -> str:
    """Return what went wrong, in a few words of ours."""
    details = error.details() or ""
    code = error.code()
    found = next((words for said, words in _MEANT.items() if said in details), "")
    return found or _CODES.get(code) or f"gRPC status {code.name.lower().replace('_', ' ')}"
