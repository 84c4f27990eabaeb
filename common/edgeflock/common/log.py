"""Logs: structlog on stderr, JSON lines or pretty on a terminal, one constant event name per line."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

from edgeflock.common.kinds import TEXT
from edgeflock.common.options import option
from edgeflock.common.ranges import one_of

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "json", "console")


def log_level_option(group: str) -> Any:
    return option(
        "info",
        TEXT,
        "lowest level that is logged",
        group=group,
        allowed=one_of(*_LEVELS),
        metavar="|".join(_LEVELS),
    )


def log_format_option(group: str) -> Any:
    return option(
        "auto",
        TEXT,
        "how a line looks; auto is console on a terminal, else json",
        group=group,
        allowed=one_of(*_FORMATS),
        metavar="|".join(_FORMATS),
    )


class _Library(logging.Handler):
    """Hands what other libraries log to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        import structlog

        logger = structlog.get_logger()
        logger.log(record.levelno, "library_message", library=record.name, text=record.getMessage())


class _Patient:
    """A stream whose disk may be full: then a line is lost, not the run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure(level: str = "info", form: str = "auto") -> None:
    """Set up logging for this process."""
    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    pretty = form == "console" or (form == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_render(pretty),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Patient(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Library()], force=True)


def _render(pretty: bool) -> list[Any]:
    import structlog

    if pretty:
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def debugging() -> bool:
    """Whether this process logs at debug level."""
    import structlog

    return structlog.is_configured() and bool(structlog.get_logger().is_enabled_for(logging.DEBUG))
