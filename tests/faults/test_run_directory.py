"""The run directory: started again, asked for more, damaged, taken."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgeflock.lab.becoming import program
from faults.conftest import RUN
from support.processes import Flock, run_to_the_end

SHORT = ("--clients=2", "--rounds=3", "--seed=7")


def cut_short(flock: Flock, rounds: int = 5) -> None:
    """Leave a run that was killed at both ends after some rounds."""
    server = flock.server(*RUN)
    client = flock.client("c0,c1,c2")
    server.wait_for("round_committed", count=rounds)
    server.kill()
    client.kill()


def newest_round(flock: Flock) -> Path:
    """Return the directory of the last committed round."""
    ((number,),) = flock.rows("SELECT max(round) FROM rounds WHERE committed")
    return flock.run_dir / "rounds" / f"{number:06d}"


def damage(path: Path) -> None:
    """Turn one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_finished_run_says_so_goes_on_if_more_is_asked_and_is_itself(flock: Flock, tmp_path: Path) -> None:
    server, client = flock.server(*SHORT), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [0, 0]
    first = flock.sha256()

    again = flock.begin_server()
    assert again.ended() == 0
    assert again.events("run_is_over", kind="completed", reason="all 3 rounds are done")
    assert flock.sha256() == first

    other = flock.begin_server("--lr=0.2")
    assert other.ended() == 2
    assert other.text.count("\n") == 1
    assert other.sentence() == (
        f"fl-server: error: {flock.run_dir} holds another run, different in --lr (0.05 there, 0.2 here): "
        "give another --run-dir"
    )

    more, client = flock.server("--rounds=5"), flock.client("c0,c1")
    assert [more.ended(), client.ended()] == [0, 0]
    assert flock.sha256() != first
    (tmp_path / "five").mkdir()
    assert flock.sha256() == run_to_the_end(tmp_path / "five", (*SHORT, "--rounds=5"), ("c0,c1",))


def test_other_data_than_the_run_was_started_with_are_refused_and_named(flock: Flock) -> None:
    """The file of --eval-data says what a sample looks like: with another one it is another run."""
    first, second = (_samples(flock.folder / f"{width}.npz", width) for width in (12, 9))
    server = flock.server(f"--eval-data={first}", "--clients=1")
    server.signal(signal.SIGTERM)
    assert server.ended() == 0

    other = flock.begin_server(f"--eval-data={second}")
    assert other.ended() == 2
    assert "different in shape of a sample (12 there, 9 here), layout of the model (" in other.sentence()

    server, client = flock.server("--rounds=2"), flock.client("c0", f"--data={first}")
    assert [server.ended(), client.ended()] == [0, 0]


def _samples(path: Path, width: int) -> Path:
    np.savez(path, x=np.ones((6, width), np.float32), y=np.arange(6) % 3)
    return path


def test_a_damaged_checkpoint_is_rebuilt_from_the_spool(flock: Flock, undisturbed: str) -> None:
    cut_short(flock)
    damage(newest_round(flock) / "model.safetensors")
    server, client = flock.server(), flock.client("c0,c1,c2")
    assert server.events("checkpoint_rebuilt")
    assert [server.ended(), client.ended()] == [0, 0]
    assert flock.sha256() == undisturbed


@pytest.mark.parametrize("missing", [False, True])
def test_a_checkpoint_that_cannot_be_rebuilt_raises_the_epoch(
    flock: Flock, undisturbed: str, missing: bool
) -> None:
    """Without the spool the server goes back a round, says so, and the run ends all the same."""
    cut_short(flock)
    newest = newest_round(flock)
    shutil.rmtree(newest) if missing else damage(newest / "model.safetensors")
    shutil.rmtree(flock.run_dir / "spool")
    server, client = flock.server(), flock.client("c0,c1,c2")
    assert server.events("checkpoint_not_rebuilt")
    assert flock.announced("epoch_raised") == [
        {"epoch": 1, "lost_up_to": int(newest.name), "round": int(newest.name) - 1}
    ]
    assert [server.ended(), client.ended()] == [0, 0]
    assert (
        flock.sha256() == undisturbed
    )  # FedAvg's clients keep nothing that the lost round would have changed


def test_without_any_good_checkpoint_the_server_says_what_to_do(flock: Flock) -> None:
    cut_short(flock, rounds=2)
    for path in flock.run_dir.glob("rounds/*/model.safetensors"):
        path.write_bytes(b"nonsense")
    server = flock.begin_server()
    assert server.ended() == 1
    root = flock.run_dir / "rounds"
    assert server.sentence() == (
        f"fl-server: error: no checkpoint in {root} is intact: restore a backup of the run directory"
    )


def test_a_torn_spool_costs_an_upload_and_nothing_else(flock: Flock, undisturbed: str) -> None:
    server = flock.server(*RUN)
    present, absent = flock.client("c0,c1"), flock.client("c2")
    server.wait_for("round_committed", count=3)
    absent.signal(signal.SIGSTOP)
    present.wait_for("update_settled")
    server.kill()
    for path in flock.run_dir.glob("spool/*/*.data"):
        damage(path)
    absent.signal(signal.SIGCONT)
    again = flock.server()
    assert [again.ended(), present.ended(), absent.ended()] == [0, 0, 0]
    assert flock.sha256() == undisturbed


@pytest.mark.parametrize(
    ("name", "content", "code", "fragment"),
    [
        ("journal.sqlite", b"nonsense " * 100, 1, "journal.sqlite cannot be used as a journal"),
        ("run.toml", b"rounds = ", 2, "run.toml' is not TOML"),
        ("run.toml", b"\xff\xfe", 2, "run.toml' is not UTF-8 text"),
        ("run.toml", b"roundz = 3\n", 2, "unknown key in"),
        ("address", b"nonsense", 0, ""),
    ],
)
def test_a_damaged_file_ends_in_a_sentence(
    flock: Flock, name: str, content: bytes, code: int, fragment: str
) -> None:
    server, client = flock.server(*SHORT), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [0, 0]
    before = flock.sha256()
    (flock.run_dir / name).write_bytes(content)
    again = flock.begin_server()
    assert again.ended() == code
    assert fragment in again.sentence()
    assert flock.sha256() == before


def test_a_second_server_on_the_same_directory_is_refused(flock: Flock) -> None:
    first = flock.server(*SHORT)
    second = flock.begin_server()
    assert second.ended() == 2
    assert second.sentence() == (
        f"fl-server: error: --run-dir '{flock.run_dir}' is in use by another fl-server"
    )
    client = flock.client("c0,c1")
    assert [first.ended(), client.ended()] == [0, 0]  # the first did not notice


def test_a_second_client_on_the_same_state_directory_is_refused(flock: Flock) -> None:
    server, first = flock.server(*SHORT), flock.client("c0")
    first.wait_for("client_started")  # and waits for c1
    second = flock.client("c0")
    assert second.ended() == 2
    assert second.sentence().endswith("is in use by another process")
    other = flock.client("c1")
    assert [server.ended(), first.ended(), other.ended()] == [0, 0, 0]


def test_another_client_of_the_same_name_is_refused(flock: Flock) -> None:
    server, first = flock.server(*SHORT), flock.client("c0")
    server.wait_for("client_joined", client="c0")
    second = flock.client("c0", f"--state-dir={flock.folder / 'another'}")
    assert second.ended() == 1
    assert "'c0'" in second.sentence()
    assert second.sentence().startswith("fl-client: error: ")
    other = flock.client("c1")
    assert [server.ended(), first.ended(), other.ended()] == [0, 0, 0]


def test_a_taken_port_is_one_sentence(flock: Flock) -> None:
    """As a process of its own: gRPC's library has its own words for it, which are not to be seen."""
    flock.server(*SHORT)
    flags = [f"--run-dir={flock.folder / 'other'}", f"--listen={flock.address}"]
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    words = [*program("fl-server"), *flags]
    second = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.startswith(
        f"fl-server: error: --listen {flock.address} cannot be bound: Address already in use; "
        "give another port, such as --listen 127.0.0.1:"
    )
    assert second.stderr.count("\n") == 1
    assert not (flock.folder / "other").exists()
