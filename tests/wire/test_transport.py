"""The transport's options on real gRPC ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from edgeflock.common.wire.transport import MAX_CHUNK, MAX_MESSAGE, channel_options, server_options


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


def test_both_ends_ping_alike_and_the_server_tolerates_it() -> None:
    client, here = dict(channel_options()), dict(server_options())
    assert client["grpc.keepalive_time_ms"] == here["grpc.keepalive_time_ms"] == 20_000
    assert client["grpc.keepalive_permit_without_calls"] == 1
    assert client["grpc.http2.max_pings_without_data"] == 0
    assert here["grpc.http2.min_recv_ping_interval_without_data_ms"] < client["grpc.keepalive_time_ms"]
