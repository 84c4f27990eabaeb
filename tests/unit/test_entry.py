"""How a command ends: a signal before it has begun, a bug, a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_COMMAND = """
import click, os, signal
from edgeflock.common.entry import run_command
from edgeflock.common.errors import BadValue

def work():
    {work}

run_command(click.Command("fl-thing", callback=work), "fl-thing")
"""


@pytest.mark.parametrize(
    ("work", "code", "words"),
    [
        ("return 3", 3, ""),
        (
            "os.kill(os.getpid(), signal.SIGTERM)",
            0,
            "fl-thing: ended by SIGTERM\n",
        ),  # while it is imported, say
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "\nfl-thing: ended by Ctrl-C\n"),
        ("raise BadValue('--thing', 1, '2')", 2, "fl-thing: error: --thing is 1, allowed is 2\n"),
        (
            "open('/nowhere')",
            1,
            "fl-thing: error: the system refused '/nowhere': No such file or directory\n",
        ),
        (
            "1 / 0",
            1,
            "fl-thing: error: this is a bug, ZeroDivisionError: division by zero "
            "(--log-level debug shows where)\n",
        ),
    ],
)
def test_a_command_ends_with_its_code_and_at_most_one_sentence(work: str, code: int, words: str) -> None:
    script = _COMMAND.format(work=work)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", words)


_SAY = "import structlog; from edgeflock.common import log; log.configure(); structlog.get_logger().info(1)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    ("work", "code"),
    [
        (_SAY, 0),
        ("raise BadValue('--thing', 1, '2')", 2),
        ("os.kill(os.getpid(), signal.SIGTERM)", 0),
    ],
)
def test_a_log_on_a_full_disk_changes_no_exit_code(work: str, code: int) -> None:
    words = [sys.executable, "-c", _COMMAND.format(work=work)]
    with open("/dev/full", "wb") as full:
        assert subprocess.run(words, stderr=full, timeout=30, check=False).returncode == code
