"""Ends of two versions: refused at Join with both named, one sentence, exit code 1; the run goes on."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edgeflock.common.wire.transport import PROTOCOL
from support.processes import Flock, until

pytestmark = pytest.mark.promise("R18")

# The two ends ask for it when they are imported.
OTHER = (
    "import edgeflock.common.wire.transport as transport; "
    "transport.PROTOCOL = transport.PROTOCOL_LEAST = {protocol}; "
    "from edgeflock.{end}.cli import main; main()"
)
RUN = ("--clients=2", "--rounds=3", "--seed=5", "--model=linear")
SKEWS = [pytest.param(PROTOCOL - 1, marks=pytest.mark.long), PROTOCOL + 1]


def command(end: str, protocol: int, *flags: str) -> list[str]:
    return [sys.executable, "-c", OTHER.format(protocol=protocol, end=end), *flags]


def sentence_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a client that was refused."""
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.rstrip().rpartition("\n")[2]


def names_both(sentence: str, client: int, server: int) -> bool:
    return (
        sentence.startswith("fl-client: error: ")
        and f"you speak revision {client} of edgeflock.v1" in sentence
        and f"this server speaks {server} (edgeflock " in sentence
    )


@pytest.mark.parametrize("protocol", SKEWS)
def test_a_client_of_another_version_is_refused_and_the_others_go_on(flock: Flock, protocol: int) -> None:
    server = flock.server(*RUN)
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / 'other'}", "--ids=c1")
    done = subprocess.run(
        command("client", protocol, *place), capture_output=True, text=True, timeout=60, check=False
    )
    assert names_both(sentence_of(done), protocol, PROTOCOL), done.stderr
    refused = server.wait_for("refused", client="c1", reason="REASON_VERSION")
    assert f"revision {protocol}" in refused["sentence"]
    clients = flock.clients("c0", "c1")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]


@contextmanager
def serving(flock: Flock, protocol: int) -> Iterator[None]:
    """A server of another version on the run directory."""
    words = command("server", protocol, f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", *RUN)
    log = flock.folder / "server.log"
    with log.open("wb") as file, subprocess.Popen(words, stderr=file) as server:
        try:
            until(lambda: (flock.run_dir / "address").exists() or None, log.read_text)
            yield
        finally:
            server.terminate()
            assert server.wait(15) == 0


@pytest.mark.parametrize("protocol", SKEWS)
def test_a_server_of_another_version_refuses_and_a_right_one_takes_over(flock: Flock, protocol: int) -> None:
    with serving(flock, protocol):
        client = flock.client("c0,c1")
        assert client.ended() == 1
        assert names_both(client.sentence(), PROTOCOL, protocol), client.text
    server, client = flock.server(), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [0, 0]


def test_a_journal_of_another_version_is_refused_with_both_named(flock: Flock) -> None:
    flock.server(*RUN).kill()
    with sqlite3.connect(flock.run_dir / "journal.sqlite") as journal:
        (version,) = journal.execute("PRAGMA user_version").fetchone()
        journal.execute(f"PRAGMA user_version = {version + 1}")
    server = flock.begin_server()
    assert server.ended() == 1
    assert f"has schema version {version + 1}, this edgeflock knows {version}" in server.sentence()
