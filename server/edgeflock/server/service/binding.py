"""Binds the services to the names of their methods; broadcast chunks go out as the bytes they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from edgeflock.common.run import RunDescription
from edgeflock.common.wire import chunks
from edgeflock.common.wire.chunks import Piece, serialise
from edgeflock.server.engine.intake import Intake
from edgeflock.server.journal.journal import Journal
from edgeflock.server.service.aggregator import AggregatorService
from edgeflock.server.service.control import ControlService
from edgeflock.server.service.flow import CreditPool
from edgeflock.server.service.gate_book import GateBook
from edgeflock.server.service.sessions import Sessions
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import control_pb2_grpc

M = TypeVar("M", bound=Message)


AGGREGATOR: str = pb.DESCRIPTOR.services_by_name["Aggregator"].full_name


def add_aggregator(
    server: grpc.aio.Server,
    intake: Intake,
    sessions: Sessions,
    run: RunDescription,
    gates: GateBook | None = None,
    *,
    credit_bytes: int,
    certified: bool = False,
    same_code: bool = False,
) -> AggregatorService:
    """Let the server answer clients; so many bytes of their uploads may be in the air."""
    pool = CreditPool(credit_bytes)
    service = AggregatorService(
        intake, sessions, run, pool, gates=gates, certified=certified, same_code=same_code
    )
    add_calls(server, _handlers(service))
    return service


def add_calls(server: grpc.aio.Server, handlers: dict[str, Any]) -> None:
    """Let the server answer the clients' calls, by the names of the methods."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(AGGREGATOR, handlers),))


def add_control(
    server: grpc.aio.Server, intake: Intake, sessions: Sessions, journal: Journal, run_id: str, run_dir: Path
) -> None:
    """Let the server answer the operator."""
    service = ControlService(intake, sessions, journal, run_id, run_dir)
    control_pb2_grpc.add_ControlServicer_to_server(service, server)


def _handlers(service: AggregatorService) -> dict[str, Any]:
    unary, down, both = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    return {
        "Join": unary(service.Join, reader(pb.JoinRequest), serialise),
        "Watch": down(service.Watch, reader(pb.WatchRequest), serialise),
        "Fetch": down(service.Fetch, reader(pb.FetchRequest), serialise),
        "Deliver": both(service.Deliver, read_delivery, serialise),
        "Report": unary(service.Report, reader(pb.ReportRequest), serialise),
        "Leave": unary(service.Leave, reader(pb.LeaveRequest), serialise),
    }


def reader(kind: type[M]) -> Callable[[bytes], M]:
    """Return the parser; bytes that are no message become an empty one, which the service refuses."""

    def read(message: bytes) -> M:
        try:
            return kind.FromString(message)
        except DecodeError:
            return kind()

    return read


def read_delivery(message: bytes) -> pb.DeliverRequest | Piece:
    return chunks.read(chunks.IN_DELIVER, message) or _read_rare(message)


_read_rare = reader(pb.DeliverRequest)
