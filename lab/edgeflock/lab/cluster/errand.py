"""An errand: a run of fl-lab that a node holds and watches, and that comes home with its directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.common.errors import UsageError
from edgeflock.lab.becoming import program
from edgeflock.lab.children import Child, Children
from edgeflock.lab.cluster import parcel
from edgeflock.lab.cluster.facts import Facts, differences, look
from edgeflock.server.files.run_dir import is_served, read_small, write_small
from edgeflock.server.journal.reader import Feed

ATTEMPT = "attempt"  # in a run directory: when the last one was sent out
_CELLS, _LOGS = "cells", "logs"
_INTERVAL_S = 1.0
_TWIN_S = 120.0  # that another attempt has to leave a common directory
_MOST_LOG = 1 << 20
_MODEL = "model.safetensors"


@dataclass(frozen=True)
class Errand:
    """One run, as any node can hold it."""

    key: str  # the name of its directory
    name: str  # for people
    arguments: tuple[str, ...]  # of fl-lab, but for the directory
    shared: str  # the folder in which all nodes see the directories; empty: each node has its own
    group: str  # whose errand it is: nodes keep those of different groups apart
    typed_in: str  # where the command was typed: plug-ins of one's own are found there
    environ: Mapping[str, str]  # what of the asker's environment goes along
    patience_s: float
    home: Facts  # of the machine that asks: another version is not what was asked for
    sent: int = (
        0  # nanoseconds since 1970, by the clock of who asks: the later attempt is the one that counts
    )

    @property
    def folder(self) -> Path:
        """The run directory, on the node that asks."""
        return (Path(self.shared) if self.shared else own_place(self.group)) / _CELLS / self.key

    @property
    def log(self) -> Path:
        return self.folder.parents[1] / _LOGS / f"{self.key}.log"


@dataclass(frozen=True)
class Homecoming:
    """What came of an errand."""

    key: str
    group: str
    sent: int
    node: str
    cpu: str
    seconds: float
    failure: str  # a sentence, empty if it went well
    log: bytes = b""  # what the command said, the end of it
    digest: str = ""  # SHA-256 of the model
    parcel: bytes = b""  # the run directory, where the nodes have their own
    node_id: str = ""  # as the cluster has it


def group_of(folder: Path) -> str:
    """Return a name for what belongs to a folder of this machine, and to no other one."""
    return hashlib.sha256(f"{socket.gethostname()}:{folder.absolute()}".encode()).hexdigest()[:16]


def own_place(group: str) -> Path:
    """Return where a node keeps the runs of a group, on its own disk, for this user alone."""
    return _of_user() / group


def _of_user() -> Path:
    return Path(tempfile.gettempdir(), f"edgeflock-{os.getuid()}")


def make_own() -> None:
    """Make this user's folder among those of all; one that somebody else has laid there is refused."""
    place = _of_user()
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{place} is not this user's own folder: remove it, or set TMPDIR on that node")


def clear(group: str, key: str) -> None:
    """Remove what this node has of an errand."""
    place = own_place(group)
    shutil.rmtree(place / _CELLS / key, ignore_errors=True)
    (place / _LOGS / f"{key}.log").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others of the group lie there
        for folder in (place / _CELLS, place / _LOGS, place, place.parent):
            folder.rmdir()


def carry(errand: Errand, tell: Callable[[int], bool], made: Callable[[str], None]) -> Homecoming:
    """Hold the run here, to its end or until a later attempt is there.

    `tell` says how far it is and whether it is still wanted, `made` which model it has come to.
    """
    here, begin = look(), time.monotonic()
    if differ := differences(errand.home, here):
        return _home(errand, here, begin, "; ".join(differ))
    folder, log = errand.folder, errand.log
    if not errand.shared:
        make_own()
    for place in (folder, log.parent):
        place.mkdir(parents=True, exist_ok=True)
    _claim(errand)
    with Children(patience_s=errand.patience_s) as children, standing(errand.typed_in):
        command = [*program("fl-lab"), *errand.arguments, f"--run-dir={folder}"]
        child = children.start(errand.name, command, log, environment(errand.environ))
        wanted = _watch(child, errand, tell)
    if not wanted:
        return _home(errand, here, begin, "a later attempt has taken its place")
    digest = _digest(folder / _MODEL) if child.code == 0 else ""
    made(digest)
    packed = b"" if errand.shared else parcel.pack(folder)
    return _home(errand, here, begin, _failure(child), _end_of(log), digest, packed)


def _home(errand: Errand, here: Facts, begin: float, failure: str, *rest: Any) -> Homecoming:
    seconds = time.monotonic() - begin
    where = f"{here.node}: {failure}" if failure else ""
    return Homecoming(errand.key, errand.group, errand.sent, here.node, here.cpu, seconds, where, *rest)


def _claim(errand: Errand) -> None:
    """Write down which attempt has the directory; where others see it, too, let an earlier one leave it."""
    write_small(errand.folder / ATTEMPT, f"{errand.sent}\n")
    end = time.monotonic() + _TWIN_S
    while errand.shared and is_served(errand.folder) and time.monotonic() < end:
        time.sleep(_INTERVAL_S)


def _watch(child: Child, errand: Errand, tell: Callable[[int], bool]) -> bool:
    """Tell of every round until the command has ended; return whether it was wanted to its end."""
    round = 0
    with closing(Feed(errand.folder)) as feed:
        while child.code is None:
            for event in feed.read():
                if event.name == "round_committed":
                    round = int(event.number("round") or 0)
            if not tell(round) or _is_older(errand):
                return False
            time.sleep(_INTERVAL_S)
    return True


def _is_older(errand: Errand) -> bool:
    said = read_small(errand.folder / ATTEMPT)
    return said.isdigit() and int(said) > errand.sent


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return what the run is to see: no options of servers, nothing of Ray's, no token."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FL_", "RAY_"))}
    own.pop("OMP_NUM_THREADS", None)  # Ray sets it
    return {**own, **given}


def taken_along() -> dict[str, str]:
    """Return what of this environment an errand takes with it: what clients read, and threads."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("FL_CLIENT_") or name == "OMP_NUM_THREADS"
    }


@contextmanager
def standing(folder: str) -> Iterator[None]:
    """Stand where the command was typed, if there is such a folder here."""
    if not Path(folder).is_dir():
        yield
        return
    with contextlib.chdir(folder):
        yield


def _failure(child: Child) -> str:
    if child.code == 0:
        return ""
    return (child.refusal() if child.code in (1, 2) else "") or child.ending()


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _end_of(log: Path) -> bytes:
    try:
        return log.read_bytes()[-_MOST_LOG:]
    except OSError:
        return b""
