"""The proxy of the fault tests ends cleanly, whatever is on its way."""

from __future__ import annotations

import contextlib
import gc
import socket

from support.proxy import Proxy


def test_a_proxy_that_ends_while_connections_come_leaves_none_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        address = f"127.0.0.1:{upstream.getsockname()[1]}"
        for turn in range(30):
            with contextlib.ExitStack() as ours, Proxy(lambda: address) as proxy:
                host, _, port = proxy.address.rpartition(":")
                for _ in range(1 + turn % 3):
                    ours.enter_context(socket.create_connection((host, int(port))))
    gc.collect()  # a socket that was left open is a warning now, and a warning is a failure


def test_a_proxy_refuses_for_as_long_as_it_is_told_to() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as upstream,
        Proxy(lambda: f"127.0.0.1:{upstream.getsockname()[1]}") as proxy,
    ):
        host, _, port = proxy.address.rpartition(":")
        proxy.refuses = True
        with (
            contextlib.suppress(ConnectionResetError),  # while it connects, or when it reads
            socket.create_connection((host, int(port)), 10) as refused,
        ):
            assert refused.recv(1) == b""
        proxy.refuses = False
        with socket.create_connection((host, int(port)), 10) as ours, upstream.accept()[0] as theirs:
            theirs.sendall(b"a")
            assert ours.recv(1) == b"a"
