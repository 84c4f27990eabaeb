"""How a command ends: a signal before it has begun, a bug, a sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_COMMAND = """
import click, os, signal
from edgeflock.common.command import signals
from edgeflock.common.command.entry import run_command
from edgeflock.common.errors import BadValue, EdgeflockError

def work():
    {work}

run_command(click.Command("fl-thing", callback=work), "fl-thing")
"""


_TOO_LARGE = "this machine has not enough memory for that: take a smaller model, or less data"


@pytest.mark.parametrize(
    ("work", "code", "words"),
    [
        ("return 3", 3, ""),
        (
            "os.kill(os.getpid(), signal.SIGTERM)",
            0,
            "fl-thing: ended by SIGTERM\n",
        ),  # while it is imported, say
        ("os.kill(os.getpid(), signal.SIGHUP)", 0, "fl-thing: ended by SIGHUP\n"),  # its terminal has gone
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "\nfl-thing: ended by Ctrl-C\n"),
        (
            "signals.on_leaving(signals.interrupt); os.kill(os.getpid(), signal.SIGTERM)",
            143,
            "\nfl-thing: ended by SIGTERM\n",
        ),
        ("raise BadValue('--thing', 1, '2')", 2, "fl-thing: error: --thing is 1, allowed is 2\n"),
        (
            "raise EdgeflockError('a' + chr(27) + '[2Jb')",
            1,
            "fl-thing: error: a\N{REPLACEMENT CHARACTER}[2Jb\n",
        ),
        (
            "open('/nowhere')",
            1,
            "fl-thing: error: the system refused '/nowhere': No such file or directory\n",
        ),
        ("bytearray(1 << 60)", 1, f"fl-thing: error: {_TOO_LARGE}\n"),
        ("import torch; torch.empty(1 << 55)", 1, f"fl-thing: error: {_TOO_LARGE}\n"),
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


def test_work_that_was_cut_off_before_it_began_has_not_ended_well_where_nothing_is_parked() -> None:
    script = _COMMAND.format(work="os.kill(os.getpid(), signal.SIGTERM)")
    script = script.replace('"fl-thing")\n', '"fl-thing", parks=False)\n')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "fl-thing: ended by SIGTERM\n")


def test_under_nohup_the_end_of_a_terminal_is_no_end() -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + _COMMAND.format(
        work="os.kill(os.getpid(), signal.SIGHUP)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_crash_in_native_code_leaves_words() -> None:
    script = _COMMAND.format(work="os.kill(os.getpid(), signal.SIGBUS)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert done.returncode == -signal.SIGBUS
    assert b"Fatal Python error: Bus error" in done.stderr


_SAY = (
    "import structlog; from edgeflock.common.command import log; "
    "log.configure(); structlog.get_logger().info(1)"
)


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
