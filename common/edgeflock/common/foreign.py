"""Foreign code: a user's model or data, called so that whatever it raises is one sentence of ours."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeflock.common.errors import EdgeflockError

_KNOWN = sys.stdlib_module_names | {"edgeflock", "torch", "numpy"}  # their lines tell nobody what to mend
_authors: set[str] = set()  # the top-level names of what was loaded as a plug-in: their lines tell most


class ForeignError(EdgeflockError):
    """Foreign code has failed: in its own words, with the line."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} failed: {reason}")
        self.reason = reason


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Raise ForeignError in place of anything that is raised within; our own errors pass."""
    try:
        yield
    except EdgeflockError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit in a model ends no process of ours
        raise ForeignError(what, _in_words(error)) from error


def is_authors(module: str) -> None:
    """Remember that a module was loaded as somebody else's: what it raises is no bug of ours."""
    if (name := module.partition(".")[0]) not in _KNOWN:
        _authors.add(name)


def blamed(error: BaseException) -> str:
    """Return in words what code loaded as somebody else's has raised; nothing if it was not there."""
    theirs = next((name for name, _, _ in _lines(error) if _of_author(name)), "")
    return f"{theirs} failed: {_in_words(error)}" if theirs else ""


def unforeseen(error: BaseException) -> str:
    """Return in words what nobody caught: too little memory, somebody else's mistake, or a bug of ours."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # so says torch
        return "this machine has not enough memory for that: take a smaller model, or less data"
    return blamed(error) or f"this is a bug, {type(error).__name__}: {error}"


def _in_words(error: BaseException) -> str:
    """Return what was raised, the first line of it, and where: the last line that is its author's."""
    words = str(_told(error)).strip().partition("\n")[0]
    said = words if words and type(error) is RuntimeError else f"{type(error).__name__}: {words}".rstrip(": ")
    where = _place(error)
    return f"{said} ({where})" if where else said


def _told(error: BaseException) -> object:
    if isinstance(error, SyntaxError):
        return error.msg  # itself it names the place, too
    return error.args[0] if isinstance(error, KeyError) and error.args else error  # that quotes its own words


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    theirs = [line for line in _lines(error) if line[0].partition(".")[0] not in _KNOWN]
    found = [line for line in theirs if _of_author(line[0])] or theirs
    return "{}:{}".format(*found[-1][1:]) if found else ""


def _lines(error: BaseException) -> list[tuple[str, str, int]]:
    """Return module, file and line of every frame that it went through, the outermost first."""
    walked = traceback.walk_tb(error.__traceback__)
    return [(str(f.f_globals.get("__name__")), Path(f.f_code.co_filename).name, line) for f, line in walked]


def _of_author(module: str) -> bool:
    return module.partition(".")[0] in _authors
