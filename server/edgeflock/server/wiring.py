"""Binds the aggregator's service to its method names; broadcast chunks go out as the bytes they are."""

from __future__ import annotations

from typing import Any

import grpc

from edgeflock.common import chunks
from edgeflock.common.chunks import Piece, serialise
from edgeflock.server.service import AggregatorService
from edgeflock.v1 import aggregator_pb2 as pb


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
        "Join": unary(service.Join, pb.JoinRequest.FromString, serialise),
        "Watch": down(service.Watch, pb.WatchRequest.FromString, serialise),
        "Fetch": down(service.Fetch, pb.FetchRequest.FromString, serialise),
        "Deliver": both(service.Deliver, _read_delivery, serialise),
        "Report": unary(service.Report, pb.ReportRequest.FromString, serialise),
        "Leave": unary(service.Leave, pb.LeaveRequest.FromString, serialise),
    }


def _read_delivery(message: bytes) -> pb.DeliverRequest | Piece:
    return chunks.read(chunks.IN_DELIVER, message) or pb.DeliverRequest.FromString(message)
