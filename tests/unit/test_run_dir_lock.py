"""The lock of a run directory: one server has it, and whoever asks about it is in nobody's way."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import pytest

from edgeflock.common.errors import Locked, UsageError
from edgeflock.server.files import run_dir
from support.commands import run


def test_one_server_has_a_run_and_everybody_can_see_it(tmp_path: Path) -> None:
    with run_dir.locked(tmp_path):
        assert run_dir.is_served(tmp_path)
        with pytest.raises(Locked, match="in use by another fl-server"), run_dir.locked(tmp_path):
            pass
    assert not run_dir.is_served(tmp_path)


def test_who_asks_whether_a_run_is_served_keeps_no_server_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = os.open(tmp_path / run_dir.LOCK, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(asking, fcntl.LOCK_SH)  # as is_served does
    monkeypatch.setattr("time.sleep", lambda seconds: os.close(asking))
    with run_dir.locked(tmp_path):
        assert run_dir.is_served(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_who_asks_keeps_nothing_open(tmp_path: Path) -> None:
    assert not run_dir.is_served(tmp_path)
    with run_dir.locked(tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            assert run_dir.is_served(tmp_path)
            with pytest.raises(Locked), run_dir.locked(tmp_path):
                pass
        assert len(os.listdir("/proc/self/fd")) == before
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert not run_dir.is_served(tmp_path)


def test_it_is_known_which_process_has_it(tmp_path: Path) -> None:
    assert run_dir.holder(tmp_path) is None
    (tmp_path / run_dir.LOCK).write_text("99999999\n")
    with run_dir.locked(tmp_path):
        assert run_dir.holder(tmp_path) == os.getpid()


def test_where_no_run_can_lie_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "there").mkdir()
    (tmp_path / "good").symlink_to(tmp_path / "there")
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    for path, words in (
        (tmp_path / "file", "file' is not a directory"),
        (tmp_path / "file" / "run", "run': '.*file' is not a directory"),
        (tmp_path / "link", "is a link to what is not there"),
        (tmp_path / "link" / "run", "link' is a link to what is not there"),
        (odd / "run", "is not UTF-8 text: give a path that is"),
    ):
        with pytest.raises(UsageError, match=f"--run-dir .*{words}"):
            run_dir.require_place(path)
    run_dir.require_place(tmp_path / "good" / "new" / "run")
    monkeypatch.chdir(odd)
    with pytest.raises(UsageError, match="not UTF-8 text"):
        run_dir.require_place(Path("run"))
    assert list(odd.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fl-lab", "run", "--run-dir=run"), "--run-dir '.*' is not UTF-8 text"),
        (("fl-server", "--run-dir=run"), "--run-dir '.*' is not UTF-8 text"),
        (("fl-lab", "compare", "g.toml"), "--out '.*' is not UTF-8 text"),
        (("fl-lab", "export", "run", "--out=m.safetensors"), "--out '.*' is not UTF-8 text"),
    ],
)
def test_a_folder_that_is_no_text_is_told_of_in_one_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    (odd / "g.toml").write_text("[run]\nrounds = 1\n")
    done = run(*words, folder=odd)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert re.match(rf"fl-\w+: error: {said}", done.stderr)
    assert [path.name for path in odd.iterdir()] == ["g.toml"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fl-lab", "run", "--run-dir=file"), "--run-dir 'file' is not a directory"),
        (("fl-lab", "run", "--run-dir=link"), "--run-dir 'link': 'link' is a link to what is not there"),
        (("fl-lab", "export", "run", "--out=."), "--out '.' is a directory, allowed is a file"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused_and_not_a_bug(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    done = run(*words, folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"fl-lab: error: {said}\n")
