"""The README's commands, typed in the order in which they stand, from a clone on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.walkthrough import script

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "runs", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info"
)


def clone(folder: Path) -> Path:
    """Return a copy of the project as a clone is: nothing installed, nothing made."""
    return Path(shutil.copytree(ROOT, folder / "edgeflock", ignore=LEFT_OUT))


def installed(place: Path) -> None:
    """Have the clone's environment be this one, as if `make setup` were done."""
    (place / ".venv").mkdir()
    (place / ".venv" / "bin").symlink_to(Path(sys.prefix, "bin"))
    (place / ".venv" / ".installed").touch()


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def walk(place: Path, home: Path, page: Path, timeout_s: float, *, long: bool = False) -> str:
    """Run a page's commands in a shell that finds no edgeflock; return what was printed."""
    paths = [path for path in os.environ["PATH"].split(":") if not Path(path, "fl-lab").exists()]
    environ = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    environ |= {"PATH": ":".join(paths), "HOME": str(home), "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
    bash = subprocess.Popen(
        ["bash", "-c", script(page, free_ports(), long=long)],
        cwd=place,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = bash.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(bash.pid, signal.SIGKILL)
        printed, _ = bash.communicate()
        printed += f"\nnot at its end after {timeout_s:g} s"
    finally:
        if bash.poll() is None or bash.returncode:
            _end(bash.pid)
    return printed


def _end(group: int) -> None:
    """End what a script that has failed left running in the background."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_the_readmes_commands_work_in_the_order_in_which_they_stand(tmp_path: Path) -> None:
    place = clone(tmp_path)
    installed(place)
    printed = walk(place, tmp_path, README, 150)
    assert printed.endswith("walked to the end\n"), printed[-3000:]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_they_work_from_a_fresh_clone_that_installs_itself(tmp_path: Path) -> None:
    """With everything that takes minutes; it fetches what `make run` needs."""
    printed = walk(clone(tmp_path), tmp_path, README, 1700, long=True)
    assert printed.endswith("walked to the end\n"), printed[-3000:]


PAGE = """
<!-- run -->
```python
open("made.txt", "w").write("x")
```

```
$ source .venv/bin/activate
$ fl-lab run --rounds 2 --clients 4
$ fl-lab events runs/20260101T000000Z-fedavg
```

<!-- run: background -->
```sh
fl-server --method fedmrur --rounds 2
```

<!-- run: 4 at once -->
```sh
fl-client --server 127.0.0.1:9300      # in four terminals
```

```sh
fl-lab report RUN
docker compose up --build
```
"""


def test_a_page_is_walked_as_its_comments_say(tmp_path: Path) -> None:
    """Servers behind, clients at once, names of runs as they are today; what needs another place is left."""
    place = tmp_path / "edgeflock"
    place.mkdir()
    installed(place)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    printed = walk(place, tmp_path, page, 100)
    assert printed.endswith("walked to the end\n"), printed[-3000:]
    assert (place / "made.txt").exists()
    assert len(list((place / "runs").glob("*-fedmrur/model.safetensors"))) == 1


def test_the_first_command_that_fails_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nfl-lab models\n```\n")
    printed = walk(tmp_path, tmp_path, page, 20)
    assert "FAILED with 127: page.md:2: fl-lab models" in printed
    assert "walked to the end" not in printed
