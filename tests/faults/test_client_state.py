"""A client's state directory: every file damaged, lost, in the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faults.conftest import RUN
from support.processes import Flock, Program, until

TOPK = (*RUN, "--codec=topk:0.1")  # clients keep what was not sent


def interrupted(flock: Flock) -> Path:
    """Leave a run in mid-way with one client killed; return that client's folder."""
    server = flock.server(*TOPK)
    flock.client("c0,c1")
    victim = flock.client("c2")
    victim.wait_for("update_settled", count=3)
    victim.kill()
    server.wait_for("round_opened")
    return flock.folder / "clients" / "c2" / "clients" / "c2"


@pytest.mark.parametrize(
    ("what", "content", "said"),
    [
        ("outbox/*", b"nonsense", ""),  # it may be empty at that instant
        ("outbox/payload", b"", ""),
        ("runs/*/*.safetensors", b"nonsense", "state_lost"),
        ("runs/*/*.safetensors", None, "state_lost"),
    ],
)
def test_a_client_with_damaged_files_starts_afresh(
    flock: Flock, what: str, content: bytes | None, said: str
) -> None:
    folder = interrupted(flock)
    files = list(folder.glob(what))
    assert files
    for path in files:
        path.unlink() if content is None else path.write_bytes(content)
    back = flock.client("c2")
    assert [program.ended() for program in (back, *flock.programs[:2])] == [0, 0, 0]
    assert not said or back.events(said)


@pytest.mark.promise("R3")
def test_a_copy_of_a_state_directory_that_is_put_back_is_noticed(flock: Flock) -> None:
    """It is whole, and of some rounds ago: no checksum tells, only what the server has counted since."""
    folder = interrupted(flock).parents[1]
    shutil.copytree(folder, flock.folder / "copy")
    again = flock.client("c2")
    again.wait_for("update_settled", count=3)
    again.kill()
    shutil.rmtree(folder)
    shutil.copytree(flock.folder / "copy", folder)
    back = flock.client("c2")
    assert [program.ended() for program in (back, *flock.programs[:2])] == [0, 0, 0]
    assert len(back.events("state_lost")) == 1


def told(program: Program) -> bool:
    said = program.events("server_not_reached")
    return any("one SD-card image" in str(line["reason"]) for line in said)


def test_two_devices_of_one_image_are_told_so(flock: Flock) -> None:
    """Same id, same instance: they would take each other's session over for ever, and nobody would know."""
    server = flock.server("--clients=2", "--rounds=2")
    first = flock.client("c0")
    first.wait_for("connected")
    place = flock.folder / "clients" / "c0"
    shutil.copytree(place, flock.folder / "clients" / "image")
    image = f"--state-dir={flock.folder / 'clients' / 'image'}"
    second = flock.start("fl-client", "--id=c0", f"--server={flock.address}", image)
    until(lambda: (told(first) and told(second)) or None, lambda: first.text[-2000:])
    assert server.events("refused", reason="REASON_DUPLICATE_ID")


@pytest.mark.promise("R3")
@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_torn_identity_costs_a_client_that_is_named_nothing(flock: Flock, content: bytes) -> None:
    folder = interrupted(flock).parents[1]
    (folder / "identity.toml").write_bytes(content)
    back = flock.client("c2")
    assert [program.ended() for program in (back, *flock.programs[:2])] == [0, 0, 0]
    assert back.events("identity_renewed")
    assert not back.events("state_lost")


def test_a_state_directory_that_cannot_be_used_is_one_sentence(flock: Flock) -> None:
    flock.server(*RUN)
    place = flock.folder / "clients" / "c0"
    place.mkdir(parents=True)
    (place / "clients").write_text("nonsense")
    client = flock.client("c0")
    assert client.ended() == 1
    assert "cannot be written: Not a directory" in client.sentence()
    assert client.sentence().startswith("fl-client: error: ")


def test_an_outbox_of_another_run_is_discarded_with_a_line(flock: Flock) -> None:
    interrupted(flock)
    for program in flock.programs:
        program.kill()
    flock.run_dir.rename(flock.folder / "old")
    server = flock.server("--clients=1", "--rounds=2")
    client = flock.client("c2")
    assert [server.ended(), client.ended()] == [0, 0]
    assert flock.verdicts("c2") == {1: "counted", 2: "counted"}
