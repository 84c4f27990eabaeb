"""The aggregator's calls as the client makes them: chunks go past protobuf, what is no message is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from edgeflock.common.wire import chunks
from edgeflock.common.wire.chunks import Piece, serialise
from edgeflock.v1 import aggregator_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["Aggregator"].full_name

M = TypeVar("M", bound=Message)


class Stub:
    """All calls of edgeflock.v1.Aggregator on one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.cut = False  # a download has broken off on this channel

        def call(shape: Any, name: str, reading: Callable[[bytes], Any]) -> Any:
            return shape(f"/{_SERVICE}/{name}", request_serializer=serialise, response_deserializer=reading)

        self.Join = call(channel.unary_unary, "Join", _reading(pb.JoinResponse))
        self.Watch = call(channel.unary_stream, "Watch", _reading(pb.WatchResponse))
        self.Fetch = call(channel.unary_stream, "Fetch", _read_fetched)
        self.Deliver = call(channel.stream_stream, "Deliver", _reading(pb.DeliverResponse))
        self.Report = call(channel.unary_unary, "Report", _reading(pb.ReportResponse))
        self.Leave = call(channel.unary_unary, "Leave", _reading(pb.LeaveResponse))


def _reading(kind: type[M]) -> Callable[[bytes], M]:
    """Return how such messages are read: gRPC would log what is raised, and give None to who waits."""

    def read(message: bytes) -> M:
        try:
            return kind.FromString(message)
        except DecodeError:
            return kind()

    return read


def _read_fetched(message: bytes) -> pb.FetchResponse | Piece:
    return chunks.read(chunks.IN_FETCH, message) or _reading(pb.FetchResponse)(message)
