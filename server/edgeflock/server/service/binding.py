"""Binds the aggregator's service to its method names; broadcast chunks go out as the bytes they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from edgeflock.common.wire import chunks
from edgeflock.common.wire.chunks import Piece, serialise
from edgeflock.server.service.aggregator import AggregatorService
from edgeflock.v1 import aggregator_pb2 as pb

M = TypeVar("M", bound=Message)


def add_aggregator(server: grpc.aio.Server, service: AggregatorService) -> None:
    """Let the server answer for edgeflock.v1.Aggregator."""
    name = pb.DESCRIPTOR.services_by_name["Aggregator"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, _handlers(service)),))


def _handlers(service: AggregatorService) -> dict[str, Any]:
    unary, down, both = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    return {
        "Join": unary(service.Join, _reader(pb.JoinRequest), serialise),
        "Watch": down(service.Watch, _reader(pb.WatchRequest), serialise),
        "Fetch": down(service.Fetch, _reader(pb.FetchRequest), serialise),
        "Deliver": both(service.Deliver, _read_delivery, serialise),
        "Report": unary(service.Report, _reader(pb.ReportRequest), serialise),
        "Leave": unary(service.Leave, _reader(pb.LeaveRequest), serialise),
    }


def _reader(kind: type[M]) -> Callable[[bytes], M]:
    """Return the parser; bytes that are no message become an empty one, which the service refuses."""

    def read(message: bytes) -> M:
        try:
            return kind.FromString(message)
        except DecodeError:
            return kind()

    return read


def _read_delivery(message: bytes) -> pb.DeliverRequest | Piece:
    return chunks.read(chunks.IN_DELIVER, message) or _read_rare(message)


_read_rare = _reader(pb.DeliverRequest)
