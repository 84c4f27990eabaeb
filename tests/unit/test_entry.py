"""How a command ends: a signal before it has begun, a bug, a sentence."""

from __future__ import annotations

import subprocess
import sys

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
        ("os.kill(os.getpid(), signal.SIGTERM)", 0, ""),  # while it is still being imported, say
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "\n"),
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
