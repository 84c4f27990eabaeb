"""Logs: structlog on stderr, as JSON lines or told to people, one constant event name per line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from edgeflock.common.command.kinds import TEXT
from edgeflock.common.command.options import option
from edgeflock.common.command.ranges import one_of
from edgeflock.common.command.terminal import Piece, Terminal

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "json", "console")
_STYLES = {"warning": "warning", "error": "error", "critical": "error", "debug": "dim"}

Tell = Callable[[str, str, Mapping[str, Any]], None]  # takes a line's level, event and fields


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


class _Told:
    """Hands every line to whoever tells it to people, who never gets in the way of what is logged."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def __call__(self, logger: object, method: str, entry: MutableMapping[str, Any]) -> str:
        import structlog

        level, name = str(entry.pop("level", method)), str(entry.pop("event", ""))
        try:
            self._tell(level, name, entry)
        except Exception as error:
            return f"{name} {dict(entry)!r} (it could not be told: {error!r})"
        raise structlog.DropEvent


def for_people(form: str) -> bool:
    """Whether lines of that --log-format are sentences."""
    return form == "console" or (form == "auto" and sys.stderr.isatty())


def in_words(level: str, name: str, fields: Mapping[str, Any]) -> Piece:
    """Return what is said of a line of which nothing but its name and fields is known."""
    rest = {key: value for key, value in fields.items() if key not in ("reason", "exception")}
    text = name.replace("_", " ")
    text += f": {fields['reason']}" if "reason" in fields else ""
    text += f" ({', '.join(f'{key}={value}' for key, value in rest.items())})" if rest else ""
    style = _STYLES.get(level, "")
    mark = f"{level}: " if style else ""
    return mark + text, style


def tell_plainly(terminal: Terminal) -> Tell:
    """Return what tells any line to people, as it is, and of a bug the way to it."""

    def tell(level: str, name: str, fields: Mapping[str, Any]) -> None:
        terminal.tell(*in_words(level, name, fields))
        for row in str(fields.get("exception", "")).splitlines():
            terminal.say([(row, "dim")])

    return tell


def configure(level: str = "info", form: str = "auto", tell: Tell | None = None) -> None:
    """Set up logging for this process; `tell` says to people what is logged, if people look."""
    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    stamp = [structlog.processors.TimeStamper(fmt="iso", utc=True)]
    render: list[Any] = [*stamp, structlog.processors.format_exc_info]
    render.append(structlog.processors.JSONRenderer(default=str))
    if for_people(form):
        tell = tell or tell_plainly(Terminal(sys.stderr))
        render = [structlog.processors.format_exc_info, _Told(tell)]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Library()], force=True)


def debugging() -> bool:
    """Whether this process logs at debug level."""
    import structlog

    return structlog.is_configured() and bool(structlog.get_logger().is_enabled_for(logging.DEBUG))
