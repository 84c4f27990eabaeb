"""The container image: what it installs, its health probe, and what Compose tells its processes."""

from __future__ import annotations

import json
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from shutil import which
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edgeflock.common.address import Address
from edgeflock.server.cli import build
from edgeflock.server.web.listen import listen_at

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


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


# Answers as docker does: how `compose up` ends, whether there is a container, its exit code.
DOCKER = """#!/bin/sh
case "$*" in
  "compose up --build -d") exit {up} ;;
  "compose ps --all --quiet server") echo {container} ;;
  "inspect --format {{{{.State.ExitCode}}}} c0ffee") echo {server} ;;
  *) exit 99 ;;
esac
"""


@pytest.mark.parametrize(
    ("up", "container", "server", "code"),
    [(0, "c0ffee", 0, 0), (1, "c0ffee", 2, 2), (1, "c0ffee", 1, 1), (14, "", 0, 14), (0, "", 0, 1)],
)
def test_containers_end_with_the_servers_exit_code(
    tmp_path: Path, up: int, container: str, server: int, code: int
) -> None:
    """Without a server there is that of compose, and never success."""
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(up=up, container=container, server=server))
    docker.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", str(DEPLOY / "compose.sh"), "-d"], env=environ, check=False)
    assert done.returncode == code


def test_the_image_installs_what_the_server_needs_before_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(DEPLOY / "requirements.py"))["main"]
    main(str(DEPLOY.parent / "pyproject.toml"), "server")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("torch>=") for line in lines)
    assert any(line.startswith("grpcio-reflection") for line in lines)
    assert not any(line.startswith("edgeflock") for line in lines)


def composed(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    """Return what Compose makes of the server's description."""
    if which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60).returncode:
        pytest.skip("docker has no compose")
    for name in ("CLIENTS", "FL_METHOD", "FL_ROUNDS", "FL_RUN", "FL_DASHBOARD", "FL_DASHBOARD_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = shlex.split("docker compose -f docker-compose.yml config --format json")
    done = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    server: dict[str, Any] = json.loads(done.stdout)["services"]["server"]
    return server


def test_compose_publishes_the_dashboard_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = composed(monkeypatch, FL_DASHBOARD_PORT="8123")["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "8123", 8080)


@pytest.mark.parametrize(("said", "dashboard"), [({}, "0.0.0.0:8080"), ({"FL_DASHBOARD": "off"}, "off")])
def test_the_server_of_compose_is_told_what_it_understands(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], dashboard: str
) -> None:
    program, *flags = composed(monkeypatch, **said)["command"]
    assert program == "fl-server"
    asked = build().make_context(program, flags).params
    assert (asked["dashboard"], asked["dashboard_insecure"]) == (dashboard, True)
    wanted = None if dashboard == "off" else Address("0.0.0.0", 8080)
    assert listen_at(asked["dashboard"], insecure=True) == wanted
