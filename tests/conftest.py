"""Every test runs with the signals of a terminal, however pytest was started, and logs that nobody set up."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest
import structlog

# A shell starts what it runs in the background with Ctrl-C ignored, and all processes of a test inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup has it ignored


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """A command that is called within a test sets logs up for a process of its own."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    yield
    structlog.reset_defaults()
    if root.handlers != handlers:
        root.handlers[:] = handlers
        root.setLevel(level)
