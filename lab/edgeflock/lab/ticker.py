"""What `fl-lab compare` shows while cells run: a line per finished cell, on a terminal a living one below."""

from __future__ import annotations

from typing import Protocol

import click

from edgeflock.common import extras


class Ticker(Protocol):
    """Where the progress of a grid goes."""

    def show(self, done: int, running: str, estimate: str) -> None: ...

    def say(self, sentence: str) -> None: ...

    def close(self) -> None: ...


class Plain:
    """One line per finished cell, for pipes and files."""

    def show(self, done: int, running: str, estimate: str) -> None:
        """What passes is not for a file."""

    def say(self, sentence: str) -> None:
        click.echo(sentence)

    def close(self) -> None:
        """There is nothing to take back."""


class Live:
    """The lines above a bar of cells, with what runs now and an estimate."""

    def __init__(self, cells: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            BarColumn(12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[estimate]}", markup=False),
            TextColumn("{task.fields[running]}", markup=False),
            transient=True,
            auto_refresh=False,  # it would take a thread, and processes are forked from here
        )
        self._task = self._progress.add_task("cells", total=cells, estimate="", running="")
        self._progress.start()

    def show(self, done: int, running: str, estimate: str) -> None:
        self._progress.update(self._task, completed=done, running=running, estimate=estimate, refresh=True)

    def say(self, sentence: str) -> None:
        self._progress.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def ticker(cells: int, terminal: bool) -> Ticker:
    """Return a living line for a terminal if it can be drawn, else plain lines."""
    return Live(cells) if terminal and extras.installed("rich") else Plain()
