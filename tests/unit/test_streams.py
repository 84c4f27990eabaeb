"""Standard streams that are closed, or whose reader has gone: a command does its work all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_COMMAND = """
import click, os, sys
from edgeflock.common.command import log, streams
from edgeflock.common.command.entry import run_command
from edgeflock.common.errors import BadValue

def work():
    {work}

run_command(click.Command("fl-thing", callback=work), "fl-thing")
"""
_SPEAK = "log.configure(); import structlog; structlog.get_logger().info(1); click.echo(2); print(3)"
_CLOSED = ("<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")


def code_of(work: str, redirections: str) -> int:
    """Return the exit code of a command whose streams the shell has redirected."""
    words = ["sh", "-c", f'exec "$0" -c "$1" {redirections}', sys.executable, _COMMAND.format(work=work)]
    return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode


@pytest.mark.parametrize("redirections", _CLOSED)
def test_words_into_a_closed_stream_change_no_exit_code_and_get_into_no_file(redirections: str) -> None:
    assert (
        code_of(f"opened = min(os.open(os.devnull, os.O_RDONLY), 3); {_SPEAK}; return opened", redirections)
        == 3
    )


@pytest.mark.parametrize(("work", "code"), [("raise BadValue('--thing', 1, '2')", 2), ("1 / 0", 1)])
def test_an_error_without_a_stream_has_its_exit_code(work: str, code: int) -> None:
    assert code_of(work, ">&- 2>&-") == code


def test_a_child_process_has_all_its_streams() -> None:
    look = "import os; [os.fstat(number) for number in range(3)]"
    call = f"import subprocess; return subprocess.call([sys.executable, '-c', '{look}'])"
    assert code_of(call, "<&- >&- 2>&-") == 0


@pytest.mark.parametrize(("stream", "unbuffered"), [("stdout", ""), ("stdout", "1"), ("stderr", "")])
def test_a_reader_that_goes_away_keeps_no_command_from_its_work(stream: str, unbuffered: str) -> None:
    work = f"[click.echo('x' * 1000, err={stream == 'stderr'}) for _ in range(999)]; return 5"
    reading, writing = os.pipe()
    os.close(reading)
    out, err = (writing, subprocess.PIPE) if stream == "stdout" else (subprocess.PIPE, writing)
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    words = [sys.executable, "-c", _COMMAND.format(work=work)]
    with os.fdopen(writing, "wb"):
        done = subprocess.run(words, env=environ, stdout=out, stderr=err, timeout=30, check=False)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (5, b"", b"")


def test_it_can_be_asked_whether_somebody_reads() -> None:
    work = "while streams.heard(): click.echo('more')"
    words = ["sh", "-c", '"$0" -c "$1" | head -1', sys.executable, _COMMAND.format(work=work)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("more\n", "")


def test_output_that_finds_its_disk_full_is_an_error() -> None:
    assert code_of("click.echo(1)", "> /dev/full") == 1


def test_python_m_edgeflock_needs_no_stream() -> None:
    words = ["sh", "-c", 'exec "$0" -m edgeflock --version >&- 2>&-', sys.executable]
    assert subprocess.run(words, timeout=30, check=False).returncode == 0
