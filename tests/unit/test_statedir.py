"""The state directory: one process at a time, a stable identity, no path out of it, sentences for faults."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from edgeflock.client.keeping.files import replace_file
from edgeflock.client.keeping.machine import machine_digest
from edgeflock.client.keeping.statedir import StateDir, Unwritable
from edgeflock.common.errors import BadValue, CorruptState, Locked


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "a" / "state")
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(state.folder("c1").stat().st_mode) == 0o700
    state.close()


def test_identity_stays_the_same(tmp_path: Path) -> None:
    first = StateDir.open(tmp_path)
    first.close()
    again = StateDir.open(tmp_path)
    assert again.identity == first.identity
    assert len(again.identity.instance) == 16
    again.close()


def test_two_directories_are_two_instances(tmp_path: Path) -> None:
    one, other = StateDir.open(tmp_path / "1", "c"), StateDir.open(tmp_path / "2", "c")
    assert one.identity.client_id == other.identity.client_id == "c"
    assert one.identity.instance != other.identity.instance
    one.close()
    other.close()


def test_a_second_process_is_refused_and_the_directory_named(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path)
    script = (
        "import sys; from pathlib import Path; from edgeflock.client.keeping.statedir import StateDir\n"
        "from edgeflock.common.errors import Locked\n"
        "try: StateDir.open(Path(sys.argv[1]))\n"
        "except Locked as error: print(error, end=''); sys.exit(error.exit_code)\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (other.returncode, other.stdout) == (2, f"state directory {tmp_path} is in use by another process")
    state.close()


def test_the_lock_ends_with_close(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path)
    with pytest.raises(Locked):
        StateDir.open(tmp_path)
    state.close()
    StateDir.open(tmp_path).close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "x" * 65, "ü", "a b", "a\n"])
def test_names_that_are_no_ids_make_no_folder(tmp_path: Path, name: str) -> None:
    state = StateDir.open(tmp_path)
    with pytest.raises(BadValue):
        state.folder(name)
    assert not (tmp_path / "clients").exists()
    state.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"id = 3",
        b"\xff\xfe",
        b'id = "a/b"\ninstance = "' + b"0" * 32 + b'"\n',
        b'id = "a"\ninstance = "0011"\n',
        b'id = "a"\ninstance = 7\n',
        b'id = "a"\n',
    ],
)
def test_a_corrupt_identity_is_one_sentence_and_frees_the_lock(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity.toml").write_bytes(content)
    for _ in range(2):
        with pytest.raises(CorruptState, match=r"identity\.toml"):
            StateDir.open(tmp_path)


@pytest.mark.parametrize("length", range(0, 53, 4))
def test_a_cut_identity_is_refused_not_replaced(tmp_path: Path, length: int) -> None:
    """Another instance in its place would be a stranger to the server."""
    StateDir.open(tmp_path, "c").close()
    file = tmp_path / "identity.toml"
    cut = file.read_bytes()[:length]
    file.write_bytes(cut)
    with pytest.raises(CorruptState):
        StateDir.open(tmp_path)
    assert file.read_bytes() == cut


@pytest.mark.parametrize("content", [b"", b"\0" * 60, b'id = "c"\ninstance = "0011'])
def test_a_torn_identity_of_a_client_that_is_named_is_made_anew(tmp_path: Path, content: bytes) -> None:
    before = StateDir.open(tmp_path, "c")
    before.close()
    (tmp_path / "identity.toml").write_bytes(content)
    with capture_logs() as logs:
        state = StateDir.open(tmp_path, "c")
    assert state.identity.client_id == "c"
    assert state.identity.instance != before.identity.instance
    assert [line["event"] for line in logs] == ["identity_renewed"]
    state.close()
    again = StateDir.open(tmp_path)
    assert again.identity == state.identity
    again.close()


def test_a_directory_that_comes_to_another_machine_gets_an_instance_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one of two: with one instance they would take each other's session over for ever."""
    machines = iter(["", "here", "here", "there", "there", ""])
    monkeypatch.setattr("edgeflock.client.keeping.statedir.machine_digest", lambda: next(machines))
    with capture_logs() as logs:
        found = []
        for _ in range(6):
            state = StateDir.open(tmp_path, "c")
            found.append((state.identity.client_id, state.identity.instance))
            state.close()
    assert len(set(found[:3])) == len(set(found[3:])) == 1
    assert found[3] == ("c", found[3][1])
    assert found[3] != found[2]
    assert [line["event"] for line in logs] == ["image_copied"]


def test_a_machine_is_told_by_its_board_and_its_installation(tmp_path: Path) -> None:
    board, installed, missing = tmp_path / "board", tmp_path / "installed", tmp_path / "missing"
    board.write_bytes(b"10000000abcdef01\0")
    installed.write_text("0123\n")
    both, one = machine_digest((board, installed)), machine_digest((missing, installed))
    assert len({both, one, ""}) == 3
    installed.write_text("\n")
    assert machine_digest((missing, installed)) == ""


def test_a_file_in_its_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(Unwritable, match=f"state directory {tmp_path}/state cannot be written: "):
        StateDir.open(tmp_path / "state")


def test_a_place_where_nothing_can_be_made_is_one_sentence() -> None:
    """Below /proc not even root can make a folder."""
    with pytest.raises(Unwritable, match="cannot be written"):
        StateDir.open(Path("/proc/self/fdinfo/state"))


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "x"
    replace_file(file, b"one")
    replace_file(file, b"two")
    assert file.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]
