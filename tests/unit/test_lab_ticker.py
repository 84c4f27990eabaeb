"""The progress of a grid: what a file gets of it, and what a terminal shows below."""

from __future__ import annotations

import io

from edgeflock.common.command.terminal import Terminal
from edgeflock.lab.compare.ticker import Ticker


class Screen(io.StringIO):
    encoding = "utf-8"

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def fileno(self) -> int:
        raise OSError  # nobody has lent it


def test_a_file_gets_the_finished_cells_alone() -> None:
    screen = Screen(terminal=False)
    shown = Ticker(Terminal(screen, {}), 4)
    shown.show(0, "fedavg 1/20", "1 min left")
    shown.say("1/4  fedavg  done in 9 s")
    shown.close()
    assert screen.getvalue() == "1/4  fedavg  done in 9 s\n"


def test_a_terminal_gets_a_bar_that_goes() -> None:
    screen = Screen(terminal=True)
    shown = Ticker(Terminal(screen, {"TERM": "xterm", "NO_COLOR": "1"}), 4)
    shown.show(1, "fedavg 1/20", "1 min left")
    assert screen.getvalue() == "\r\x1b[K━━━───────── 1/4 1 min left fedavg 1/20"
    shown.close()
    assert screen.getvalue().endswith("\r\x1b[K")
