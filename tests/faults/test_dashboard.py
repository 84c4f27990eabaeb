"""The dashboard beside a real server: it comes back, it goes with the server, and the run does not care."""

from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request

import psutil

from support.processes import LIMIT_S, Flock, Program, until

RUN = ("--clients=2", "--rounds=20", "--dashboard=127.0.0.1:0")


def child(server: Program) -> psutil.Process | None:
    """Return the dashboard's process, once it is there."""
    assert server.process.pid is not None
    found = psutil.Process(server.process.pid).children()
    return next((process for process in found if "edgeflock.server.web" in process.cmdline()), None)


def address(flock: Flock) -> str:
    return (flock.run_dir / "dashboard").read_text("utf-8").strip()


def healthy(flock: Flock) -> bool | None:
    try:
        with urllib.request.urlopen(f"http://{address(flock)}/healthz", timeout=LIMIT_S) as answer:
            return True if answer.read() == b"ok\n" else None
    except (urllib.error.URLError, ConnectionError):
        return None


def gone(process: psutil.Process) -> bool | None:
    return None if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else True


def test_it_says_where_it_is_and_goes_with_a_run_that_ends(flock: Flock) -> None:
    server = flock.server(*RUN)
    said = server.wait_for("dashboard_listening")
    assert said["address"] == address(flock)
    assert said["url"] == f"http://{address(flock)}/"
    shown = until(lambda: child(server), lambda: "the dashboard's process")
    until(lambda: healthy(flock), lambda: "an answer")
    clients = flock.clients("c0", "c1")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert gone(shown)
    assert server.events("dashboard_ended") == []


def test_a_killed_dashboard_is_started_again_and_the_run_goes_on(flock: Flock) -> None:
    server = flock.server(*RUN)
    first = until(lambda: child(server), lambda: "the dashboard's process")
    first.kill()
    assert server.wait_for("dashboard_ended")["code"] == -signal.SIGKILL
    until(lambda: healthy(flock), lambda: "an answer of the second one")
    second = child(server)
    assert second is not None
    assert second.pid != first.pid
    clients = flock.clients("c0", "c1")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]


def test_it_dies_with_a_killed_server_and_the_next_one_has_its_address(flock: Flock) -> None:
    server = flock.server(*RUN)
    shown = until(lambda: child(server), lambda: "the dashboard's process")
    until(lambda: healthy(flock), lambda: "an answer")
    before = address(flock)
    server.kill()
    until(lambda: gone(shown), lambda: "the end of the dashboard")
    server = flock.server()  # run.toml says that there is one
    until(lambda: healthy(flock), lambda: "an answer of the second life")
    assert address(flock) == before
    server.signal(signal.SIGTERM)
    assert server.ended() == 0


def test_the_interrupt_of_a_terminal_drains_the_server_and_its_dashboard_says_goodbye(flock: Flock) -> None:
    server = flock.server(*RUN)
    shown = until(lambda: child(server), lambda: "the dashboard's process")
    until(lambda: healthy(flock), lambda: "an answer")
    assert server.process.pid is not None
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.ended() == 0
    assert gone(shown)
    assert server.events("dashboard_ended") == []


def test_a_taken_address_is_one_sentence_and_nothing_is_begun(flock: Flock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = flock.begin_server("--clients=2", f"--dashboard=127.0.0.1:{port}")
        assert server.ended() == 2
    assert server.sentence() == (
        f"fl-server: error: --dashboard 127.0.0.1:{port} cannot be bound: Address already in use"
    )


def test_beyond_this_machine_it_is_refused_without_consent(flock: Flock) -> None:
    server = flock.begin_server("--clients=2", "--dashboard=0.0.0.0:0", "--insecure")
    assert server.ended() == 2
    assert "--dashboard 0.0.0.0:0 reaches beyond this machine" in server.sentence()
    server = flock.server("--clients=2", "--dashboard=0.0.0.0:0", "--dashboard-insecure")
    assert server.wait_for("dashboard_listening")["url"].startswith("http://127.0.0.1:")
