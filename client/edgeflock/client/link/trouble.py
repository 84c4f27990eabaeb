"""Why a server was not reached, in words: what gRPC says of it is for those who debug gRPC. Pure."""

from __future__ import annotations

import grpc
import structlog

from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Unreached

log = structlog.get_logger(__name__)

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


def unreached(error: grpc.aio.AioRpcError, trust: Trust) -> Unreached:
    """Return what gRPC says of a call that broke as what is raised for it."""
    details, code = error.details() or "", error.code()
    log.debug("grpc_says", code=code.name, details=details)
    if passing := trust.passing(details):
        return Unreached(passing)
    if wrong := trust.wrong(details):
        return Unreached(wrong, distrusted=True)
    foreign = code is grpc.StatusCode.UNIMPLEMENTED
    return Unreached(in_words(error), hint=trust.hint(details), foreign=foreign)
