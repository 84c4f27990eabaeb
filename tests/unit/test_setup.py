"""What `make run` and `make setup` install, and what they say before and after; uv is a recorder here."""

from __future__ import annotations

import os
import platform
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINUX_X86 = platform.system() == "Linux" and platform.machine() == "x86_64"
NEXT = "next: source .venv/bin/activate"

# Answers as uv does, makes what it would make, and writes down what it was told.
UV = f"""#!/bin/sh
echo "$*" >> uv.log
mkdir -p .venv/bin
printf '#!/bin/sh\\necho it runs\\n' > .venv/bin/fl-lab
chmod +x .venv/bin/fl-lab
ln -sf {sys.executable} .venv/bin/python
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what `make` needs, and a uv that only says what it would do."""
    (tmp_path / "deploy").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "deploy/venv.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "uv").write_text(UV)
    (tmp_path / "tools" / "uv").chmod(0o755)
    return tmp_path


def environment(clone: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{clone}/tools:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(clone),
        "SHELL": "/bin/bash",
        **more,
    }


def make(clone: Path, *words: str, **more: str) -> str:
    command = ["make", "--no-print-directory", *words]
    return subprocess.run(
        command, cwd=clone, env=environment(clone, **more), capture_output=True, text=True, check=True
    ).stdout


def installed(clone: Path) -> list[str]:
    """Return the lines in which something was installed."""
    lines = (clone / "uv.log").read_text().splitlines()
    return [line for line in lines if line.startswith("pip install")]


def test_a_run_installs_what_it_needs_and_nothing_of_the_developers(clone: Path) -> None:
    said = make(clone, "run")
    (line,) = installed(clone)
    assert line.endswith("-c constraints.txt -e .[lab]")
    assert "--quiet" in line
    assert said.splitlines()[-2:] == ["it runs", f"{NEXT}   # then fl-lab, fl-server and fl-client are found"]
    make(clone, "run")
    assert len(installed(clone)) == 1


def test_what_developers_have_serves_a_run_and_is_brought_up_to_date_with_it(clone: Path) -> None:
    assert NEXT in make(clone, "setup")
    make(clone, "run")
    assert [line.split()[-1] for line in installed(clone)] == [".[dev]"]
    os.utime(clone / ".venv/.installed", (0, 0))
    make(clone, "run")
    assert [line.split()[-1] for line in installed(clone)] == [".[dev]", ".[dev]"]


def test_the_next_command_is_that_of_the_users_shell_and_is_not_said_where_it_was_typed(clone: Path) -> None:
    assert f"{NEXT}.fish " in make(clone, "setup", SHELL="/usr/bin/fish")
    active = f"{clone}/.venv/bin:{clone}/tools:/usr/bin:/bin"
    assert "next:" not in make(clone, "setup", PATH=active)


@pytest.mark.skipif(not LINUX_X86, reason="torch is a CUDA build on x86-64 Linux only")
def test_the_size_and_the_way_to_the_small_build_are_said_before_anything_is_fetched(clone: Path) -> None:
    lines = make(clone, "run").splitlines()
    assert "about 3 GB are fetched" in lines[0]
    assert lines[1].endswith("type: make run UV_TORCH_BACKEND=cpu")
    assert lines[2].startswith("installing")


@pytest.mark.parametrize("told", [{"UV_TORCH_BACKEND": "cpu"}, {"PIP_FIND_LINKS": "/wheels"}])
def test_nothing_is_said_of_a_size_that_is_not_fetched(clone: Path, told: dict[str, str]) -> None:
    assert "GB" not in make(clone, "run", **told)


def test_on_a_terminal_the_progress_is_shown(clone: Path) -> None:
    reader, terminal = pty.openpty()
    subprocess.run(
        ["make", "setup"], cwd=clone, env=environment(clone), stdout=terminal, stderr=terminal, check=True
    )
    os.close(terminal)
    os.close(reader)
    assert "--quiet" not in installed(clone)[0]
