"""Binds the aggregator's service to its method names; broadcast chunks go out as the bytes they are."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import Message

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
        "Join": unary(service.Join, pb.JoinRequest.FromString, _serialise),
        "Watch": down(service.Watch, pb.WatchRequest.FromString, _serialise),
        "Fetch": down(service.Fetch, pb.FetchRequest.FromString, _serialise),
        "Deliver": both(service.Deliver, pb.DeliverRequest.FromString, _serialise),
        "Report": unary(service.Report, pb.ReportRequest.FromString, _serialise),
        "Leave": unary(service.Leave, pb.LeaveRequest.FromString, _serialise),
    }


def _serialise(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()
