"""fl-server and fl-client for people, as real processes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from edgeflock.lab.becoming import program
from support.commands import clean_environ

NOBODY = "127.0.0.1:1"


def said(*command: str, folder: Path) -> str:
    """Run a command to its end and return what it says on stderr."""
    done = subprocess.run(
        command, cwd=folder, env=clean_environ(), capture_output=True, text=True, timeout=100, check=False
    )
    return done.stderr


def test_a_served_run_ends_with_its_table_and_what_to_type_next(tmp_path: Path) -> None:
    server = [*program("fl-server"), "--log-format=console", "--listen=127.0.0.1:0", "--run-dir=run"]
    text = said(*server, "--method=centralized", "--rounds=2", folder=tmp_path)
    lines = text.splitlines()
    assert lines[0] == "centralized on digits (mlp) with the union of 4 shards, 2 rounds, in run"
    assert lines[1].startswith("listening at 127.0.0.1:")
    rounds = [line.split("  ")[0] for line in lines if line.startswith("round ")]
    assert rounds == ["round 1/2", "round 2/2"]
    assert "ended           completed, all 2 rounds are done" in lines
    assert re.fullmatch(r"next: \S*fl-lab (report|events) run.*", lines[-1])
    assert "\x1b" not in text
    again = said(*server, folder=tmp_path).splitlines()
    assert again[0].endswith("this run is over, and every client has had its time to hear it")
    assert again[-1] == lines[-1]


def test_nobody_reads_what_grpc_says_of_a_server_that_is_not_there(tmp_path: Path) -> None:
    for form in ("console", "json"):
        client = [*program("fl-client"), f"--server={NOBODY}", "--state-dir=state", "--give-up-after=1"]
        text = said(*client, f"--log-format={form}", folder=tmp_path)
        assert "connection refused" in text
        assert not re.search("ipv4:|grpc_status|failed to connect|UNAVAILABLE|errno", text)
        assert text.count("no server at") == (form == "console")


def test_a_run_that_fails_says_so_after_its_table(tmp_path: Path) -> None:
    server = [*program("fl-server"), "--log-format=console", "--listen=127.0.0.1:0", "--run-dir=run"]
    lines = said(*server, "--max-clients-wait=0.1", "--clients=1", folder=tmp_path).splitlines()
    assert any(line.startswith("waiting for clients: 0 of 1") for line in lines)
    assert any(line.startswith("ended ") and "failed" in line for line in lines)
    assert lines[-1].startswith("fl-server: error: ")
