"""The scripts inside the container image: seats of replicas, and the health probe."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

# Takes a seat, says which, and keeps it until its standard input ends.
REPLICA = f"""
import runpy, sys
print(runpy.run_path({str(DEPLOY / "replica.py")!r})["take_seat"](sys.argv[1]), flush=True)
sys.stdin.read()
"""


def replica(volume: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a replica on that volume and return it with its seat."""
    command = [sys.executable, "-c", REPLICA, str(volume)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_living_replicas_have_seats_of_their_own_and_a_freed_one_is_taken_again(tmp_path: Path) -> None:
    first, first_seat = replica(tmp_path)
    second, second_seat = replica(tmp_path)
    first.communicate()
    third, third_seat = replica(tmp_path)
    second.communicate()
    third.communicate()
    assert [first_seat, second_seat, third_seat] == ["client-1", "client-2", "client-1"]


@pytest.fixture
def server() -> Iterator[tuple[str, health.HealthServicer]]:
    """A gRPC server with the standard health service: its address and the service."""
    running = grpc.server(futures.ThreadPoolExecutor(1))
    service = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(service, running)
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    yield f"127.0.0.1:{port}", service
    running.stop(None).wait()


def probe(address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEPLOY / "healthcheck.py"), address]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(("status", "code"), [(SERVING, 0), (NOT_SERVING, 1)])
def test_the_probe_ends_with_the_servers_health(
    server: tuple[str, health.HealthServicer], status: int, code: int
) -> None:
    address, service = server
    service.set("", status)
    assert probe(address).returncode == code


def test_the_probe_of_an_absent_server_fails_with_the_reason() -> None:
    answer = probe("127.0.0.1:1")
    assert answer.returncode == 1
    assert answer.stderr.startswith("127.0.0.1:1: ")
    assert "Traceback" not in answer.stderr


def test_the_image_installs_what_the_server_needs_before_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(DEPLOY / "requirements.py"))["main"]
    main(str(DEPLOY.parent / "pyproject.toml"), "server")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("torch>=") for line in lines)
    assert any(line.startswith("grpcio-reflection") for line in lines)
    assert not any(line.startswith("edgeflock") for line in lines)
