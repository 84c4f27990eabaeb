"""Lines that stay and one that changes: what a terminal gets, what a pipe gets, and what fits."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from edgeflock.common.command.terminal import Line, Terminal, cut, folded, safe, spark, text_of

_SCRIPT = """
import sys
from edgeflock.common.command.terminal import Terminal
terminal = Terminal(sys.stdout)
terminal.show([("working 0 s", "live")])
terminal.say([("round 1 ", "bold"), ("is done", "")])
terminal.show([("working 1 s", "live")])
terminal.show(())
"""


def on_a_terminal(**environ: str) -> str:
    """Return what the script writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    everything = {**os.environ, "TERM": "xterm", **environ}
    command = [sys.executable, "-c", _SCRIPT]
    with subprocess.Popen(command, env=everything, stdout=theirs, start_new_session=True) as running:
        os.close(theirs)
        text = read_all(ours)
    assert running.returncode == 0
    return text


def read_all(terminal: int) -> str:
    """Return what is written to a pseudo terminal until its other side is closed."""
    pieces: list[bytes] = []
    with os.fdopen(terminal, "rb", buffering=0) as file:
        while True:
            try:
                piece = file.read(65536)
            except OSError:  # how Linux says that nobody writes any more
                piece = b""
            if not piece:
                return b"".join(pieces).decode()
            pieces.append(piece)


def test_a_terminal_gets_the_moment_below_the_lines_and_nothing_of_it_stays() -> None:
    text = on_a_terminal()
    assert "\r\x1b[K\x1b[36mworking 0 s\x1b[0m" in text
    assert "\r\x1b[K\x1b[1mround 1 \x1b[0mis done\r\n\r" not in text
    assert "\x1b[1mround 1 \x1b[0mis done\r\n" in text
    assert text.endswith("\r\x1b[K")


def test_who_wants_no_colour_gets_none() -> None:
    text = on_a_terminal(NO_COLOR="1")
    assert "\r\x1b[Kworking 0 s" in text
    assert "\x1b[3" not in text
    assert "\x1b[1m" not in text


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_can_do_nothing_gets_plain_lines(term: str) -> None:
    assert on_a_terminal(TERM=term) == "round 1 is done\r\n"


def test_a_pipe_gets_the_lines_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "round 1 is done\n"


def test_a_line_is_broken_between_words_and_goes_on_below_its_text() -> None:
    line: Line = [("12:00:00  ", "dim"), ("client-1a2b is in quarantine", "warning")]
    rows = [text_of(row) for row in folded(line, 24, indent=10)]
    assert rows == ["12:00:00  client-1a2b is", "          in quarantine"]
    assert [text_of(row) for row in folded(line, None)] == [text_of(line)]


def test_a_word_that_is_longer_than_the_line_stays_whole() -> None:
    rows = [text_of(row) for row in folded([("model SHA-256  " + "f" * 64, "")], 60, indent=2)]
    assert rows == ["model SHA-256", "f" * 64]


def test_a_word_that_fits_without_its_margin_goes_without() -> None:
    rows = [text_of(row) for row in folded([("budget  " + "f" * 64, "")], 66, indent=8)]
    assert rows == ["budget", "  " + "f" * 64]


def test_what_does_not_fit_is_cut_with_a_sign_of_it() -> None:
    line: Line = [("round 1", "bold"), ("  updates 3 of 4", "")]
    assert text_of(cut(line, 12)) == "round 1  up…"
    assert cut(line, 23) == line


def test_the_curve_goes_from_the_lowest_to_the_highest_value() -> None:
    assert spark([0.1, 0.5, 0.9], 8) == "▁▅█"
    assert spark([0.1, 0.5, 0.9], 2) == "▁█"
    assert spark([0.5, 0.5], 8) == "▁▁"
    assert spark([], 8) == ""


def test_words_of_others_are_shown_without_what_moves_the_cursor() -> None:
    assert safe("fine \x1b[2J\n").isprintable()
    assert safe("größer als 0.5 µs") == "größer als 0.5 µs"


def test_no_line_moves_the_cursor_by_the_words_of_others() -> None:
    screen = io.StringIO()
    terminal = Terminal(screen, {})
    terminal.say([("it says: ", "bold"), ("bye\x1b[2J\r", "")])
    terminal.tell("bye\x1b[2J\r")
    assert all(line.isprintable() for line in screen.getvalue().splitlines())
