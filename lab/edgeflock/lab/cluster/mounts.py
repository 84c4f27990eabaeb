"""Which file system a folder lies on, and those on which the journal of a run cannot be kept."""

from __future__ import annotations

import re
from pathlib import Path

_TABLE = Path("/proc/self/mounts")
_REFUSED = frozenset({"nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "9p", "afs", "beegfs"})
_ESCAPED = re.compile(r"\\([0-7]{3})")


def kind(folder: Path, table: str = "") -> str:
    """Return the type of the file system that a folder would lie on, empty if that is not known."""
    try:
        lines = (table or _TABLE.read_text("utf-8", "replace")).splitlines()
    except OSError:
        return ""
    whole = folder.absolute()
    while not whole.exists() and whole != whole.parent:
        whole = whole.parent
    mounts = [(Path(_plain(words[1])), words[2]) for line in lines if len(words := line.split()) > 2]
    fitting = [entry for entry in mounts if whole.resolve().is_relative_to(entry[0])]
    return max(fitting, key=lambda entry: len(entry[0].parts), default=(Path(), ""))[1]


def why_not(folder: Path, table: str = "") -> str:
    """Return why no run can be kept in a folder, nothing if it can."""
    if (found := kind(folder, table)) not in _REFUSED:
        return ""
    return f"{folder} lies on {found}, where SQLite's journal loses what is written: a run needs another disk"


def _plain(path: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), path)
