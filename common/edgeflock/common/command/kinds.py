"""Kinds of option values: how each is read from text (flags, environment) and from TOML, and written back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeflock.common.command.ranges import Range
from edgeflock.common.errors import UsageError

_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d|)")
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(|[KMGT]i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_SPAN = re.compile(r"(\d{1,9})\.\.(\d{1,9})", re.ASCII)
_PAIR = re.compile(r"([A-Za-z][\w.-]*[<>]?)=(.*)", re.DOTALL)  # mae<=0.5 too


@dataclass(frozen=True)
class ValueKind:
    """One kind of value. `read` and `load` raise ValueError for what is not of the kind."""

    words: str  # what a refusal says is allowed
    metavar: str
    read: Callable[[str], Any]  # from a flag or an environment variable
    load: Callable[[Any], Any]  # from a value that TOML has already typed
    dump: Callable[[Any], Any] = lambda value: value  # to a value that TOML can hold
    toml_words: str = ""  # what a refusal says is allowed in TOML, where that is something else


def _exact(*types: type) -> Callable[[Any], Any]:
    def load(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(value)
        return value

    return load


def _text(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError(text)
    return text


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise ValueError(text)
    return int(text)


def _span(text: str) -> int | str:
    """Read a number, or the least and the most of something, which stay a text: 3..8."""
    match = _SPAN.fullmatch(text)
    if not match:
        return _integer(text)
    least, most = int(match[1]), int(match[2])
    if not 1 <= least <= most:
        raise ValueError(text)
    return f"{least}..{most}" if least < most else most


def ends(span: int | str) -> tuple[int, int]:
    """Return the least and the most of a SPAN; of a number both are that."""
    if isinstance(span, int):
        return span, span
    least, _, most = span.partition("..")
    return int(least), int(most)


def seconds(text: str) -> float:
    """Read a duration: 30, 30s, 500ms, 10m, 12h, 1d."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    return _number(match[1]) * _UNITS[match[2]]


def size(text: str) -> float:
    """Read a number of bytes: 1500, 800KB, 1.5MB (powers of 1000), 2GiB (powers of 1024)."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    unit = match[2].lower()
    base = 1024.0 if unit.endswith("i") else 1000.0
    return float(match[1]) * float(base ** _POWERS[unit[:1]])


def duration(number: float) -> str:
    """Return seconds as people write them, in the largest unit that divides them."""
    for unit in ("d", "h", "m"):
        if number and number % _UNITS[unit] == 0:
            return f"{number / _UNITS[unit]:g}{unit}"
    return f"{number:g}s"


def _seconds_value(value: Any) -> float:
    return seconds(value) if isinstance(value, str) else _number(_exact(int, float)(value))


def _flag(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError(text)
    return _WORDS[text.lower()]


def _pair(text: str) -> dict[str, str]:
    match = _PAIR.fullmatch(text)
    if not match:
        raise ValueError(text)
    return {match[1]: match[2]}


def _pairs(text: str) -> dict[str, str]:
    """Read KEY=VALUE pairs; in an environment variable blanks separate them."""
    pairs = [_pair(part) for part in text.split()] if text.strip() else [_pair(text)]
    found = {key: value for pair in pairs for key, value in pair.items()}
    if len(found) < len(pairs):
        raise ValueError(text)
    return found


def _table(value: Any) -> dict[str, str]:
    return {key: plain(entry) for key, entry in _exact(dict)(value).items()}


def plain(value: Any) -> str:
    """Return a TOML value as the text that a flag would carry; a list becomes its entries with commas."""
    if isinstance(value, list):
        return ",".join(plain(entry) for entry in value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(_exact(str, int, float)(value))


def _list(separator: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(_text(part.strip()) for part in text.split(separator))


def _entries(value: Any) -> tuple[str, ...]:
    return tuple(_text(_exact(str)(entry)) for entry in _exact(list)(value))


def _words(value: Any) -> tuple[str, ...]:
    """Read a list, or what a flag would carry: the entries with commas."""
    return _list(",")(value) if isinstance(value, str) else _entries(value)


TEXT = ValueKind("a text", "TEXT", _text, lambda value: _text(_exact(str)(value)))
INTEGER = ValueKind("an integer", "N", _integer, _exact(int))
SPAN = ValueKind(
    "an integer, or a range such as 3..8",
    "N|LEAST..MOST",
    _span,
    lambda value: _span(value) if isinstance(value, str) else _exact(int)(value),
)
NUMBER = ValueKind("a number", "X", _number, lambda value: _number(_exact(int, float)(value)))
SECONDS = ValueKind("a time such as 30s, 10m or 12h", "TIME", seconds, _seconds_value)
FLAG = ValueKind("true or false", "", _flag, _exact(bool))
PATH = ValueKind(
    "a path",
    "PATH",
    lambda text: Path(_text(text)),
    lambda value: Path(_text(_exact(str)(value))),
    lambda value: str(value),
)


@dataclass(frozen=True)
class Pem:
    """What a PEM file would hold, written into the file of options itself."""

    text: str = field(repr=False)

    def __str__(self) -> str:
        return "the text in the file of options"


def _pem(value: Any) -> Path | Pem:
    text = _exact(str)(value)
    return Pem(text) if _is_pem(text) else Path(_text(text))


def _pem_path(text: str) -> Path:
    """Return a path; a key is not repeated in what is said of it, for it would stand in a log."""
    if _is_pem(text):
        raise UsageError("a PEM text stands in the --config file alone: others can read flags and variables")
    return Path(_text(text))


def _is_pem(text: str) -> bool:
    return "\n" in text or text.startswith("-----BEGIN")


PEM = ValueKind(
    "a path",
    "FILE",
    _pem_path,
    _pem,
    lambda value: value.text if isinstance(value, Pem) else str(value),
    toml_words="a path, or what a PEM file holds",
)
PAIRS = ValueKind(
    "KEY=VALUE, each KEY once",
    "KEY=VALUE",
    _pairs,
    _table,
    toml_words="a table such as { KEY = VALUE }",
)
IDS = ValueKind("ids separated by commas", "ID,ID...", _list(","), _words, list)
REFERENCES = ValueKind(
    "package.module:NAME, several separated by commas", "REF,REF...", _list(","), _words, list
)
COLUMNS = ValueKind("columns separated by commas", "COLUMN,...", _list(","), _words, list)
LINES = ValueKind("a list of lines", "", _list("\n"), _entries, list)


def allowed_words(kind: ValueKind, allowed: Range | None) -> str:
    """Return the words for what is allowed, of the range if there is one."""
    return allowed.words if allowed else kind.words
