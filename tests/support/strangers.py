"""What may answer behind a server's address and is none: another service, an ingress, a peer of any bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
from grpc_health.v1 import health, health_pb2_grpc

_PREFACE = 24  # bytes with which a client of HTTP/2 begins
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_END, _ACK = 0x05, 0x01  # of stream and headers; of settings and pings
_404 = b"\x8d"  # ":status 404" in HPACK's static table


@contextmanager
def service() -> Iterator[str]:
    """A gRPC service of somebody else; gives its address."""
    server = grpc.server(ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def ingress() -> Iterator[str]:
    """A proxy that knows no such place: HTTP/2, and 404 for whatever is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_all, args=(listener,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _answer_all(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            taken, _ = listener.accept()
            threading.Thread(target=_answer, args=(taken,), daemon=True).start()


def _answer(taken: socket.socket) -> None:
    with taken, suppress(OSError, EOFError):
        _read(taken, _PREFACE)
        taken.sendall(_frame(_SETTINGS, 0, 0, b""))
        while True:
            head = _read(taken, 9)
            size, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:])
            body = _read(taken, size)
            if kind == _HEADERS:
                taken.sendall(_frame(_HEADERS, _END, stream, _404))
            elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                taken.sendall(_frame(kind, _ACK, 0, body if kind == _PING else b""))


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def _read(taken: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = taken.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found
