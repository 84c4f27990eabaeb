"""Looking for a data set's files below the data root, downloading them, saying what is missing."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import edgeflock.common.datasets.kit.download as download
from edgeflock.common.datasets.kit.home import default_root
from edgeflock.common.errors import BadData, BadValue, MissingData


@dataclass(frozen=True)
class Place:
    """Where the files of one data set may lie and where people get them."""

    name: str
    home: str
    folders: tuple[str, ...]  # below the data root, first match counts; "" is the root itself
    torchvision: str = ""  # the class that can download it
    probe: str = ""  # a small address of the same host, to learn quickly whether there is a network

    def find(self, root: Path, wanted: tuple[str, ...]) -> dict[str, Path]:
        """Return the path of every wanted file (packed ones as NAME.gz), after a download if need be.

        Raises MissingData with one sentence: which file, where it was looked for, where people get it.
        """
        found, missing = self._look(root, wanted)
        if not missing:
            return found
        reason = ""
        if self.torchvision:
            reason = download.fetch(self.torchvision, self.probe, root, lambda: self.holds(root, wanted))
            found, missing = self._look(root, wanted)
        if missing:
            raise MissingData(self._sentence(root, missing, reason))
        return found

    def holds(self, root: Path, wanted: tuple[str, ...]) -> bool:
        """Whether every wanted file is there, without a download."""
        return not self._look(root, wanted)[1]

    def folder(self, root: Path, wanted: tuple[str, ...]) -> Path | None:
        """Return the folder that the first wanted file lies in, or below."""
        return next((root / folder for folder in self.folders if self._path(root, folder, wanted[0])), None)

    def _look(self, root: Path, wanted: tuple[str, ...]) -> tuple[dict[str, Path], list[str]]:
        found: dict[str, Path] = {}
        for name in wanted:
            path = next(filter(None, (self._path(root, folder, name) for folder in self.folders)), None)
            if path:
                found[name] = path
        return found, [name for name in wanted if name not in found]

    def _path(self, root: Path, folder: str, name: str) -> Path | None:
        candidates = (root / folder / f"{name}{end}" for end in ("", ".gz"))
        return next((path for path in candidates if path.exists()), None)

    def _sentence(self, root: Path, missing: list[str], reason: str) -> str:
        places = " or ".join(str(root / folder) for folder in self.folders)
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        home = f"; people get it from {self.home}" if self.home else ""
        tried = f"; a download was tried, but {reason}" if reason else ""
        where = "; --data-root names the folder that has it" if root == default_root() else ""
        return (
            f"{self.name}: file {missing[0]!r}{more} is missing, looked for in {places}{home}{tried}{where}"
        )


def content(path: Path) -> bytes:
    """Return a file's bytes, unpacked if it is a .gz."""
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise BadData(f"{path} is not a whole .gz file: {error}") from error


def below(root: Path, argument: str) -> Path:
    """Return a path that cannot leave the data root: the name may have come from a server."""
    relative = PurePosixPath(argument)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in argument:
        raise BadValue("data set", argument, "a name or path below the data root")
    return root / relative
