"""Where papers' files lie: those that come with edgeflock, in a checkout or in the package, or one's own."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.command.options import unknown
from edgeflock.common.errors import UsageError

RESULTS = "results"
_PACKAGED = Path(__file__).parent / "files"  # as pyproject.toml puts papers/ into the wheel
_CHECKOUT = Path(__file__).parents[4] / "papers"


def home() -> Path:
    """Return the folder of the files that come with edgeflock."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def names() -> list[str]:
    """Return the names of the papers that come with edgeflock."""
    return sorted(path.stem for path in home().glob("*.toml"))


def find(name: str) -> Path:
    """Return the file of a paper, by its name or as a path. Raises UsageError with a sentence."""
    if name.endswith(".toml") or "/" in name:
        if not Path(name).is_file():
            raise UsageError(f"there is no paper's file {name!r}")
        return Path(name)
    if name not in names():
        raise unknown("paper", name, names())
    return home() / f"{name}.toml"


def is_packaged(path: Path) -> bool:
    """Whether a paper's file is one of the installed package: nothing is kept beside it."""
    return path.parent == _PACKAGED


def results_of(path: Path) -> Path:
    """Return the folder in which the results of a paper's file are kept."""
    return path.parent / RESULTS
