"""The small files of a state directory: written whole, or it is said that they were not."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from edgeflock.client.keeping import files
from edgeflock.client.keeping.files import make_folder, replace_file, write_over, write_pieces


def full_after(count: int) -> Any:
    """Return a write that finds the disk full after so many bytes, as one call may: it says how many."""
    pwrite = os.pwrite
    return lambda descriptor, content, offset: pwrite(descriptor, bytes(content)[:count], offset)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_written_over_in_part_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an update would stand for whole whose description is torn."""
    (tmp_path / "meta").write_bytes(b"before")
    before = descriptors()
    monkeypatch.setattr(os, "pwrite", full_after(3))
    with pytest.raises(OSError, match="No space left") as caught:
        write_over(tmp_path / "meta", b"after")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "meta"))
    assert descriptors() == before


def test_a_file_that_is_there_is_written_over_and_none_is_made(tmp_path: Path) -> None:
    before = descriptors()
    assert not write_over(tmp_path / "meta", b"x")
    assert not (tmp_path / "meta").exists()
    (tmp_path / "meta").write_bytes(b"before")
    assert write_over(tmp_path / "meta", b"now")
    assert (tmp_path / "meta").read_bytes() == b"nowore"
    assert descriptors() == before


def test_a_small_file_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "x", b"one")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        replace_file(tmp_path / "x", b"two")
    assert (tmp_path / "x").read_bytes() == b"one"


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_to_last_is_flushed_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    flushed: list[str] = []

    def fsync(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        flushed.append(os.path.relpath(name, tmp_path))
        assert os.path.isdir(name) or os.stat(name).st_size == 3

    monkeypatch.setattr(os, "fsync", fsync)
    before = descriptors()
    replace_file(tmp_path / "x", b"one", lasting=lasting)
    assert flushed == ([".x.tmp", "."] if lasting else [])
    assert (tmp_path / "x").read_bytes() == b"one"
    assert descriptors() == before


def test_a_folder_and_those_above_it_are_their_owner_s_and_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(files, "flush_names", lambda folder: flushed.append(folder.name))
    make_folder(tmp_path / "a" / "b")
    assert flushed == [tmp_path.name, "a"]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")} == {0o700}
    make_folder(tmp_path / "a" / "b")
    assert len(flushed) == 2


def test_a_folder_that_another_process_makes_at_the_same_moment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_dir, looked = Path.is_dir, list[Path]()

    def look(path: Path) -> bool:
        looked.append(path)
        if len(looked) > 1:
            return is_dir(path)
        path.mkdir()  # by the other one, who has come a moment too late to be seen
        return False

    monkeypatch.setattr(Path, "is_dir", look)
    make_folder(tmp_path / "a")
    assert looked[0] == tmp_path / "a"


def test_pieces_that_are_written_in_part_go_on_where_they_were_and_the_file_ends_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"longer than what comes now")
    before = descriptors()
    monkeypatch.setattr(os, "pwrite", full_after(3))
    write_pieces(path, [b"some ", memoryview(b"bytes"), b""])
    assert path.read_bytes() == b"some bytes"
    assert descriptors() == before
    write_pieces(tmp_path / "new", [b"x"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
