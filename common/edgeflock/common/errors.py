"""The errors that callers tell apart; every message is one sentence for people."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

NO_SPACE = "no space left on the disk"
LOCKED = "another program has locked the journal"
FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk that is full now


class EdgeflockError(Exception):
    """Root of all errors of the project: `str(error)` is a sentence, `exit_code` what a command ends with."""

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows in place of a traceback: its sentence."""
        return [f"edgeflock: {self}"]


class UsageError(EdgeflockError):
    """A flag, key or file given by the operator is wrong; nothing was started."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that is not among those that exist; the sentence names the nearest one."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(set(known))
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {what} {name!r}: {hint}known are {', '.join(names) or 'none'}")
        self.name = name


class BadValue(UsageError):
    """A value outside what its field allows."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}, allowed is {allowed}")
        self.field = field


class MissingData(EdgeflockError):
    """A file of a data set is not where it is looked for."""

    exit_code = 2


class BadData(UsageError):
    """Data of the wrong shape, type or range."""


class NothingYet(BadData):
    """Data without a single sample: there may be some later."""


class LayoutMismatch(EdgeflockError):
    """Two ends disagree about names, shapes or dtypes of a bundle."""


class Undescribed(LayoutMismatch):
    """Two ends disagree, and of the other one no more than digests is known."""


class CorruptPayload(EdgeflockError):
    """Encoded bytes that no encoder of ours has written."""


class MalformedMessage(EdgeflockError):
    """A message of the wire whose fields contradict each other or their limits."""


class CorruptCheckpoint(EdgeflockError):
    """A file of a run directory does not hold what the journal says."""


class JournalBroken(EdgeflockError):
    """The journal of a run cannot be written; what it holds is intact."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the journal cannot be written: {cause}")
        text = str(cause).lower()
        self.no_space = "full" in text or "no space" in text
        self.hindrance = (
            NO_SPACE if self.no_space else ""
        )  # what passes: what is written later may be written
        if "is locked" in text:
            self.hindrance = LOCKED

    @property
    def passing(self) -> bool:
        """Whether it can be written later."""
        return bool(self.hindrance)


class CorruptState(EdgeflockError):
    """A file of a client's state directory cannot be used."""


class Locked(UsageError):
    """A directory is in use by another living process."""


class NonFinite(EdgeflockError):
    """NaN or infinity where a finite number is needed."""
