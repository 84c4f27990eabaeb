"""fl-lab control and events against a living server."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.common.client_id import WORDS
from edgeflock.server.journal.events import write_event
from support.commands import run, start
from support.processes import flock
from support.told_run import told_run, writing


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run("fl-lab", *arguments)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """The directory of a run that waits for its clients."""
    run_dir = tmp_path / "run"
    arguments = [f"--run-dir={run_dir}", "--listen=127.0.0.1:0", "--linger=0", "--log-format=json"]
    with start("fl-server", *arguments) as server:
        assert server.stderr is not None
        while "run_started" not in server.stderr.readline():
            assert server.poll() is None
        yield run_dir
        server.terminate()
        server.communicate(timeout=30)


def test_the_status_names_run_state_and_clients(run_dir: Path) -> None:
    done = lab("control", run_dir, "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert "method   fedavg\nstate    gathering" in done.stdout
    assert "round    0 of 20\nclients  0 online of 4" in done.stdout


def test_a_run_is_paused_resumed_and_stopped(run_dir: Path) -> None:
    for action, answer in (("pause", "paused"), ("resume", "resumed"), ("stop", "stopping")):
        done = lab("control", run_dir, action)
        assert (done.returncode, done.stderr, done.stdout.startswith(answer)) == (0, "", True)
    done = lab("events", run_dir, "--json", "--follow")
    names = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert (names[0], names[-1]) == ("run_started", "run_ended")
    assert json.loads(done.stdout.splitlines()[-1])["reason"] == "stopped by the operator"


@pytest.mark.parametrize("after", [0, 99])
def test_whoever_follows_a_run_that_is_over_is_told_of_it_and_let_go(tmp_path: Path, after: int) -> None:
    """Also where clients went after the end, and behind the last event."""
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        write_event(journal, "run_ended", {"kind": "completed", "reason": "done", "round": 3}, 2.0)
        write_event(journal, "client_leaving", {"client": "a", "reason": "the run is over"}, 3.0)
    done = lab("events", run_dir, "--json", "--follow", "--after", after)
    names = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert names == ([] if after else ["client_joined", "client_joined", "run_ended", "client_leaving"])


def test_the_events_from_a_cursor_on(run_dir: Path) -> None:
    said = (
        lab("events", run_dir, "--json").stdout for _ in range(100)
    )  # news comes into the journal a little later
    first = json.loads(next(filter(None, said)).splitlines()[0])
    assert first["event"] == "run_started"
    assert lab("events", run_dir, "--after", first["cursor"]).stdout == ""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is over."""
    with flock(tmp_path_factory.mktemp("finished")) as made:
        assert made.begin_server("--method=centralized", "--rounds=2").ended() == 0
        return made.run_dir


def test_the_status_of_a_finished_run_says_how_it_ended_and_what_came_of_it(finished: Path) -> None:
    done = lab("control", finished, "status")
    digest = hashlib.sha256((finished / "model.safetensors").read_bytes()).hexdigest()
    assert (done.returncode, done.stderr) == (0, "")
    assert "state    finished (completed: all 2 rounds are done)\nround    2 of 2\n" in done.stdout
    assert "result   accuracy 0." in done.stdout
    assert f"SHA-256 {digest}\n" in done.stdout


@pytest.mark.parametrize("action", ["pause", "resume", "stop", "release"])
def test_what_needs_a_living_run_says_that_it_is_over(finished: Path, action: str) -> None:
    done = lab("control", finished, action, *(["--client=a"] if action == "release" else []))
    sentence = f"{finished} is over (completed: all 2 rounds are done): {action} needs a run that goes on"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fl-lab: error: {sentence}\n")


def test_of_a_run_whose_server_was_killed_it_says_how_to_go_on(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        made.server().kill()
        status, pause = lab("control", made.run_dir, "status"), lab("control", made.run_dir, "pause")
        going_on = f"fl-server --run-dir {made.run_dir} goes on with the run"
        sentence = f"fl-lab: error: the server of {made.run_dir} is not running: {going_on}\n"
        assert "state    interrupted (its server is not running)\nround    0 of 20" in status.stdout
        assert (status.returncode, status.stderr) == (1, sentence)
        assert (pause.returncode, pause.stdout, pause.stderr) == (1, "", sentence)


def test_a_directory_without_a_run_is_one_sentence(tmp_path: Path) -> None:
    done = lab("control", tmp_path, "status")
    assert done.stderr == f"fl-lab: error: {tmp_path} is not a run directory: it has no journal.sqlite\n"
    assert done.returncode == 2


_WHOM = "release, add, drop, replace need --client ID, no other action takes it"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["replace", "--client=pi7"], "replace needs --by ID, no other action takes it"),
        (
            ["drop", "--client=pi7"],
            "the roster is not complete: until then a client takes a seat by coming",
        ),
        (["add", "--client=p i"], f"'p i' is no client id: allowed is {WORDS}"),
        (
            ["release", "--client=pi7"],
            "--client is 'pi7', allowed is an id that is in quarantine: none is now",
        ),
        (["release"], _WHOM),
        (["pause", "--client=pi7"], _WHOM),
    ],
)
def test_a_release_or_a_change_of_nobody_is_one_sentence(
    run_dir: Path, arguments: list[str], sentence: str
) -> None:
    done = lab("control", run_dir, *arguments)
    assert (done.returncode, done.stderr) == (2, f"fl-lab: error: {sentence}\n")
