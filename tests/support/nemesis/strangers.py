"""Who else may answer behind an address: another run, a model of its own, another service, a web server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc

from support.processes import Flock

_FLAGS = {
    "fl-server": ("--clients=9", "--method=scaffold"),  # it waits for others
    "own model": ("--clients=9", "--model=support.final_bits:net"),
}


@contextlib.contextmanager
def stranger(
    flock: Flock, kind: str, number: int, address: str = "127.0.0.1:0"
) -> Iterator[Callable[[], str]]:
    """Let it listen; give where, once it does."""
    match kind:
        case "grpc":
            with _service() as port:
                yield lambda: f"127.0.0.1:{port}"
        case "http":
            with _web() as port:
                yield lambda: f"127.0.0.1:{port}"
        case _:
            with _other_run(flock, kind, number, address) as where:
                yield where


@contextlib.contextmanager
def _other_run(flock: Flock, kind: str, number: int, address: str) -> Iterator[Callable[[], str]]:
    folder = flock.folder / f"other-{number}"
    server = flock.start("fl-server", f"--run-dir={folder}", f"--listen={address}", *_FLAGS[kind])
    try:
        yield lambda: (folder / "address").read_text("utf-8").strip()
    finally:
        server.kill()


@contextlib.contextmanager
def _service() -> Iterator[int]:
    """A service that knows none of our calls."""
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


class _NotFound(BaseHTTPRequestHandler):
    """A web server that knows nothing of gRPC."""

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""


@contextlib.contextmanager
def _web() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NotFound)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
