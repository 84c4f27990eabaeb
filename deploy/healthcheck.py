"""Asks a gRPC server at HOST:PORT for its health: healthcheck.py HOST:PORT [CA], over TLS with an authority.

Exit code 0 if it is serving, else 1 with the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

TIMEOUT_S = 3.0


def dial(address: str, authority: str | None) -> grpc.Channel:
    options = [("grpc.enable_http_proxy", 0)]
    if authority is None:
        return grpc.insecure_channel(address, options=options)
    trusted = grpc.ssl_channel_credentials(Path(authority).read_bytes())
    return grpc.secure_channel(address, trusted, options=options)


def main(address: str, authority: str | None = None) -> int:
    with dial(address, authority) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            print(f"{address}: {error.details()}", file=sys.stderr)
            return 1
    print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
