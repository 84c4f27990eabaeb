"""The lock of a run directory: one server has it, and whoever asks about it is in nobody's way."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from edgeflock.common.errors import Locked
from edgeflock.server.files import run_dir


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


def test_it_is_known_which_process_has_it(tmp_path: Path) -> None:
    assert run_dir.holder(tmp_path) is None
    (tmp_path / run_dir.LOCK).write_text("99999999\n")
    with run_dir.locked(tmp_path):
        assert run_dir.holder(tmp_path) == os.getpid()
