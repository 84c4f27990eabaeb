"""The aggregator's calls as the client makes them: the generated ones, but chunks go past protobuf."""

from __future__ import annotations

from typing import Any

import grpc

from edgeflock.common.wire import chunks
from edgeflock.common.wire.chunks import Piece, serialise
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1.aggregator_pb2_grpc import AggregatorStub

_SERVICE = pb.DESCRIPTOR.services_by_name["Aggregator"].full_name


class Stub:
    """All calls of edgeflock.v1.Aggregator on one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.cut = False  # a download has broken off on this channel
        plain: Any = AggregatorStub(channel)
        self.Join, self.Watch = plain.Join, plain.Watch
        self.Report, self.Leave = plain.Report, plain.Leave
        self.Fetch: Any = channel.unary_stream(
            f"/{_SERVICE}/Fetch",
            request_serializer=pb.FetchRequest.SerializeToString,
            response_deserializer=_read_fetched,
        )
        self.Deliver: Any = channel.stream_stream(
            f"/{_SERVICE}/Deliver",
            request_serializer=serialise,
            response_deserializer=pb.DeliverResponse.FromString,
        )


def _read_fetched(message: bytes) -> pb.FetchResponse | Piece:
    return chunks.read(chunks.IN_FETCH, message) or pb.FetchResponse.FromString(message)
