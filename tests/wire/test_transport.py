"""The transport's options on real gRPC ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from edgeflock.client.config import ClientConfig, resolve
from edgeflock.client.link.line import Link
from edgeflock.common.wire.transport import (
    MAX_CHUNK,
    MAX_MESSAGE,
    MAX_STATUS,
    Options,
    channel_options,
    server_options,
)


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


@pytest.fixture
def server() -> Iterator[tuple[grpc.Server, int]]:
    made = grpc.server(ThreadPoolExecutor(1), handlers=[Echo()], options=server_options())
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    yield made, port
    made.stop(None).wait(10)


def test_a_port_that_is_taken_is_refused(server: tuple[grpc.Server, int]) -> None:
    """By default gRPC shares the port with another process, and clients meet either."""
    second = grpc.server(ThreadPoolExecutor(1), options=server_options())
    with pytest.raises(RuntimeError, match="bind"):
        second.add_insecure_port(f"127.0.0.1:{server[1]}")


def test_the_largest_chunk_passes_and_more_than_a_message_does_not(server: tuple[grpc.Server, int]) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server[1]}", options=channel_options()) as channel:
        echo: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/edgeflock.test/Echo")
        assert len(echo(bytes(MAX_CHUNK + 100), timeout=20)) == MAX_CHUNK + 100
        with pytest.raises(grpc.RpcError) as refused:
            echo(bytes(MAX_MESSAGE + 1), timeout=20)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_operator_is_told_of_more_clients_than_a_chunk_has_bytes() -> None:
    """As of 60,000 with their devices; on the clients' own port such a message is refused."""
    told = bytes(MAX_MESSAGE + 1)
    made = grpc.server(ThreadPoolExecutor(1), handlers=[Echo()], options=server_options(MAX_STATUS))
    place = f"127.0.0.1:{made.add_insecure_port('127.0.0.1:0')}"
    made.start()
    try:
        with grpc.insecure_channel(place, options=channel_options(largest=MAX_STATUS)) as channel:
            echo: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/edgeflock.test/Echo")
            assert echo(told, timeout=20) == told
    finally:
        made.stop(None).wait(10)


def test_both_ends_ping_alike_and_the_server_tolerates_it() -> None:
    client, here = dict(channel_options()), dict(server_options())
    assert client["grpc.keepalive_time_ms"] == here["grpc.keepalive_time_ms"] == 20_000
    assert client["grpc.keepalive_permit_without_calls"] == 1
    assert client["grpc.http2.max_pings_without_data"] == 0
    assert int(here["grpc.http2.min_recv_ping_interval_without_data_ms"]) < 20_000


@pytest.mark.parametrize("variable", ["http_proxy", "grpc_proxy", "https_proxy"])
def test_a_proxy_of_the_environment_is_not_asked(
    server: tuple[grpc.Server, int], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    assert echo(server[1], channel_options()) == b"here"


def test_a_proxy_that_is_named_is_gone_through(
    server: tuple[grpc.Server, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment excepts, once a link was made of such a configuration."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("no_grpc_proxy", "")
    with tunnel() as (proxy, asked):
        Link.of(resolve(ClientConfig(server=f"127.0.0.1:{server[1]}", proxy=proxy, state_dir=Path("unused"))))
        assert echo(server[1], channel_options(proxy)) == b"here"
    assert asked == [f"CONNECT 127.0.0.1:{server[1]} HTTP/1.1"]


def echo(port: int, options: Options) -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/edgeflock.test/Echo")
        return call(b"here", timeout=20)


@contextmanager
def tunnel() -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy for one connection; gives its URL, and what it was asked."""
    asked: list[str] = []

    def serve(listener: socket.socket) -> None:
        taken, _ = listener.accept()
        asked.append(taken.recv(4096).decode().partition("\r\n")[0])
        host, _, port = asked[0].split()[1].rpartition(":")
        with taken, socket.create_connection((host, int(port))) as there:
            taken.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=pump, args=(there, taken))
            back.start()
            pump(taken, there)
            there.shutdown(socket.SHUT_RDWR)
            back.join()

    def pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(4096):
                other.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join()
