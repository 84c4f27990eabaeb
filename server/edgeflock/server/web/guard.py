"""What every answer obeys: reading only, this machine's names unless said otherwise, strict headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

log = structlog.get_logger()

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_READING = ("GET", "HEAD")


def guard(hosts: Collection[str] | None = ()) -> Middleware:
    """Return what stands before handlers: it answers to this machine's names and to those; None is any."""

    @web.middleware
    async def stand(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in _READING:
            return refuse(405, "this server only shows: GET and HEAD", {"Allow": ", ".join(_READING)})
        if hosts is not None and not is_local(request.host) and name_of(request.host) not in hosts:
            return refuse(421, "this server answers to localhost only (and to each --dashboard-host NAME)")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return refuse(error.status, error.reason)
        except ConnectionError:  # the viewer has gone
            raise
        except Exception as error:
            log.exception("dashboard_failed", path=request.path[:100])
            return refuse(500, f"this is a bug: {type(error).__name__}")

    return stand


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers, just before an answer goes out."""
    response.headers.update(HEADERS)
    response.headers["Server"] = "edgeflock"


def refuse(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{sentence}\n", headers=headers)


def name_of(host: str) -> str:
    """Return a Host header without its port."""
    return (host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host).lower()


def is_local(host: str) -> bool:
    """Whether a Host header means this machine: a foreign name that leads here is an attack by DNS."""
    name = name_of(host)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
