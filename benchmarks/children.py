"""The processes of a benchmark: started together, waited for, none left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from edgeflock.lab import becoming
from edgeflock.lab import children as lab

ROOT = Path(__file__).resolve().parent.parent
_POLL_S = 0.05
Child = lab.Child
program = becoming.program


class Failed(Exception):
    """A process of a benchmark did not do what it was started for."""


class Children(lab.Children):
    """The lab's processes, with the patience of a benchmark."""

    def __enter__(self) -> Children:
        return self

    def wait_until(self, ready: Callable[[], bool], limit_s: float) -> None:
        """Wait for something that a process does; raises Failed if one has failed or the time is over."""
        self._poll(ready, limit_s)

    def finish(self, limit_s: float) -> None:
        """Wait until all have ended well; raises Failed otherwise."""
        self._poll(lambda: not self.living(), limit_s)

    def _poll(self, ready: Callable[[], bool], limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while not ready():
            self.check()
            if time.monotonic() > end:
                names = ", ".join(child.name for child in self.living())
                raise Failed(f"after {limit_s:g} s these still run: {names}")
            time.sleep(_POLL_S)
        self.check()

    def check(self) -> None:
        """Raise Failed if one has ended badly."""
        for child in self.all:
            if child.code:
                raise Failed(child.ending())


def environment() -> dict[str, str]:
    """Return our environment without settings of edgeflock, with this package importable."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("FL_SERVER_", "FL_CLIENT_"))
    }
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}
