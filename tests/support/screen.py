"""What a console writes to where there is no terminal, and a clock that stands until it is set."""

from __future__ import annotations

import io
import re


class Screen(io.StringIO):
    """A stream that is no terminal."""

    encoding = "utf-8"

    def lines(self) -> list[str]:
        """Return what was written, without the times of day."""
        return [re.sub(r"^\d\d:\d\d:\d\d", "TT", line) for line in self.getvalue().splitlines()]


class Clock:
    """Seconds, as a test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
