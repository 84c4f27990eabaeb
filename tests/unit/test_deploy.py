"""The container image: what it installs, its health probe, and what Compose tells its processes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from shutil import which
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edgeflock.client.cli import build as client_command
from edgeflock.common.wire.address import Address
from edgeflock.common.wire.listen import listen_at
from edgeflock.server.cli import build
from support.processes import until

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


# Answers as docker does: how `compose up` ends; container, start and exit code before it and after.
DOCKER = """#!/bin/sh
case "$*" in
  "compose up --build -d") touch "$0.up"; exit {up} ;;
  "compose ps --all --quiet server") what=container ;;
  "inspect --format {{{{.State.StartedAt}}}} "*) what=started ;;
  "inspect --format {{{{.State.ExitCode}}}} "*) what=code ;;
  *) exit 99 ;;
esac
if [ -e "$0.up" ]; then set -- {after}; else set -- {before}; fi
case $what in container) echo "$1" ;; started) echo "$2" ;; code) echo "$3" ;; esac
"""
_OLD, _NONE, _UNBORN = "c0ffee 2026-01-01T10:00:00Z 0", "", "dead 0001-01-01T00:00:00Z 0"


@pytest.mark.parametrize(
    ("before", "up", "after", "code"),
    [
        (_NONE, 0, "beef 2026-01-02T10:00:00Z 0", 0),
        (_OLD, 1, "beef 2026-01-02T10:00:00Z 2", 2),  # made anew
        (_OLD, 0, "c0ffee 2026-01-02T10:00:00Z 0", 0),  # started again
        (_OLD, 1, "c0ffee 2026-01-02T10:00:00Z 1", 1),
        (_OLD, 1, _OLD, 1),  # what the last run has left
        (_OLD, 0, _OLD, 0),  # it was there, and nothing else was asked for
        (_OLD, 14, _UNBORN, 14),
        (_NONE, 14, _UNBORN, 14),
        (_NONE, 14, _NONE, 14),
        (_NONE, 0, _NONE, 1),
    ],
)
def test_containers_end_with_the_servers_exit_code(
    tmp_path: Path, before: str, up: int, after: str, code: int
) -> None:
    """Without a server that was started by it there is that of compose, and never success."""
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(before=before, up=up, after=after))
    docker.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", str(DEPLOY / "compose.sh"), "-d"], env=environ, check=False)
    assert done.returncode == code


def test_the_image_is_given_everything_that_its_package_is_built_of() -> None:
    """What .dockerignore forgets only the build would miss, in everybody's first `docker compose up`."""
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    given = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    build = project["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    wanted = [
        *wheel["packages"],
        *wheel["force-include"],
        build["hooks"]["custom"]["path"],
        project["project"]["readme"],
    ]
    assert {name.partition("/")[0] for name in wanted} | {"pyproject.toml", "constraints.txt"} <= given


# Ends as it is told: with a code, by a signal, or when SIGTERM comes.
SERVER = """#!/bin/sh
echo "$@" >> lives
case "$1" in
  [0-9]*) exit "$1" ;;
  killed) kill -KILL $$ ;;
  stays) trap 'exit 7' TERM; echo > ready; while :; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def serve(tmp_path: Path) -> Callable[[str], subprocess.Popen[bytes]]:
    """Start the container's program with a server that only ends."""
    program = tmp_path / "fl-server"
    program.write_text(SERVER)
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def start(word: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(DEPLOY / "serve.py"), "note", word]
        return subprocess.Popen(command, cwd=tmp_path, env=environ)

    return start


def test_a_server_that_failed_by_itself_does_not_try_again_before_it_is_told(
    serve: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert serve("2").wait(10) == 2
    assert serve("0").wait(10) == 2
    assert (tmp_path / "lives").read_text() == "2\n"
    (tmp_path / "note").unlink()
    assert serve("0").wait(10) == 0
    assert serve("0").wait(10) == 0
    assert (tmp_path / "lives").read_text() == "2\n0\n0\n"


def test_a_server_that_was_killed_begins_again(
    serve: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert serve("killed").wait(10) == 128 + 9
    assert serve("0").wait(10) == 0


def test_a_word_to_stop_reaches_the_server_and_its_end_is_waited_for(
    serve: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    running = serve("stays")
    until(lambda: (tmp_path / "ready").exists() or None, lambda: "the server is not there")
    running.terminate()
    assert running.wait(10) == 7


def composed(monkeypatch: pytest.MonkeyPatch, *profiles: str, **variables: str) -> dict[str, Any]:
    """Return what Compose makes of the services' descriptions."""
    if which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60).returncode:
        pytest.skip("docker has no compose")
    description = (DEPLOY.parent / "docker-compose.yml").read_text()
    for name in set(re.findall(r"\${(\w+)", description)):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    asked = [f"--profile={profile}" for profile in profiles]
    command = ["docker", "compose", "-f", "docker-compose.yml", *asked, "config", "--format", "json"]
    done = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    services: dict[str, Any] = json.loads(done.stdout)["services"]
    return services


def flags_of_server(services: dict[str, Any]) -> list[str]:
    program, script, _, *flags = services["server"]["command"]
    assert (program, script) == ("python", "/opt/edgeflock/deploy/serve.py")
    return list(map(str, flags))


def flags_of_client(services: dict[str, Any]) -> list[str]:
    """Return what the shell, having found a server, turns into fl-client with."""
    script = services["client"]["command"][2]
    return shlex.split(script.partition("exec fl-client ")[2].partition(";")[0])


def test_compose_publishes_the_dashboard_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    services = composed(monkeypatch, FL_DASHBOARD_PORT="8123")
    (port,) = services["server"]["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "8123", 8080)
    assert 'echo "the live view is at http://127.0.0.1:8123/"' in services["begin"]["command"][2]


@pytest.mark.parametrize(("said", "dashboard"), [({}, "0.0.0.0:8080"), ({"FL_DASHBOARD": "off"}, "off")])
def test_the_processes_of_compose_are_told_what_they_understand(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], dashboard: str
) -> None:
    services = composed(monkeypatch, **said)
    asked = build().make_context("fl-server", flags_of_server(services)).params
    assert (asked["dashboard"], asked["dashboard_insecure"]) == (dashboard, True)
    wanted = None if dashboard == "off" else Address("0.0.0.0", 8080)
    assert listen_at(asked["dashboard"], insecure=True) == wanted
    client = client_command().make_context("fl-client", flags_of_client(services)).params
    assert (client["server"], client["log_level"]) == ("server:9300", "warning")
    assert (str(asked["tls_cert"]), asked["dashboard_host"]) == ("/keys/server.pem", "localhost")
    assert str(client["tls_ca"]) == "/trust/ca.pem"
    assert not asked["insecure"]
    assert not client["insecure"]


def test_containers_reach_what_they_need_and_take_what_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client sees neither the world nor the server's keys; nothing of it takes the machine's memory."""
    services = composed(monkeypatch, FL_CLIENT_MEMORY="1g")
    client, server = services["client"], services["server"]
    assert (set(client["networks"]), set(server["networks"])) == ({"flock"}, {"flock", "outside"})
    assert {mount["source"] for mount in client["volumes"]} == {"state", "trust"}
    assert {mount["source"] for mount in server["volumes"] if mount.get("read_only")} == {"keys", "trust"}
    assert (int(client["mem_limit"]), int(server["mem_limit"])) == (2**30, 4 * 2**30)
    assert all(service["pids_limit"] == 256 for service in services.values())
    assert {services[name]["network_mode"] for name in ("begin", "outcome")} == {"none"}


@pytest.mark.parametrize(
    ("said", "name", "rounds"),
    [
        ({}, "fedmrur-4", None),
        ({"FL_METHOD": "fedprox", "FL_ROUNDS": "50", "CLIENTS": "8"}, "fedprox-8", "50"),
        ({"FL_RUN": "mine", "CLIENTS": "2"}, "mine", None),
    ],
)
def test_another_method_or_number_of_clients_is_another_run_of_compose(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], name: str, rounds: str | None
) -> None:
    """What nobody said about rounds is left to the run: it knows its own."""
    services = composed(monkeypatch, **said)
    asked = build().make_context("fl-server", flags_of_server(services)).params
    assert (str(asked["run_dir"]), asked["rounds"]) == (f"/runs/{name}", rounds)
    assert services["client"]["deploy"]["replicas"] == int(asked["clients"])
    assert f"server:/runs/{name} " in services["outcome"]["command"][1]


def test_what_compose_builds_is_pulled_from_nowhere_and_what_is_killed_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = composed(monkeypatch)
    assert {name: service["pull_policy"] for name, service in services.items()} == {
        "begin": "never",
        "server": "build",
        "client": "never",
        "outcome": "never",
    }
    assert services["client"]["restart"] == "on-failure"
    assert services["server"]["restart"].startswith("on-failure:")
    assert services["server"]["build"]["args"] == {"TORCH_BACKEND": "cpu"}


def test_a_gpu_is_reserved_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "client-gpu" not in composed(monkeypatch)
    services = composed(monkeypatch, "gpu", CPU_CLIENTS="0", GPU_CLIENTS="4")
    assert services["client"]["deploy"]["replicas"] == 0
    deploy = services["client-gpu"]["deploy"]
    assert deploy["replicas"] == 4
    assert deploy["resources"]["reservations"]["devices"][0]["driver"] == "nvidia"
