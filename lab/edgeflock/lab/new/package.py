"""The package that `fl-lab new` writes: one module, its entry point, and tests that pass."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from edgeflock.common.errors import BadValue, UsageError

TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", re.ASCII)
_LONGEST = 40  # characters: the name is that of a folder, too
# What a package brings: the name in its module.
_OBJECTS = {
    "method": "METHOD",
    "model": "make",
    "task": "TASK",
    "dataset": "ENTRY",
    "partition": "SCHEME",
    "transform": "transform",
}
# How a run is told of it, where that is not by the kind's and its own name alone.
_TOLD = {"partition": "--partition {}:0.5", "transform": "--augment {}"}
KINDS = tuple(_OBJECTS)


@dataclass(frozen=True)
class NewPackage:
    """A package that is to be written."""

    kind: str
    name: str

    @property
    def folder(self) -> str:
        return f"fl-{self.name.replace('_', '-')}"

    @property
    def module(self) -> str:
        return f"fl_{self.name.replace('-', '_')}"

    @property
    def entry_point(self) -> str:
        """Where its entry point leads."""
        return f"{self.module}:{_OBJECTS[self.kind]}"

    @property
    def trial(self) -> str:
        """The command that tries it."""
        return f"fl-lab run {_TOLD.get(self.kind, f'--{self.kind} {{}}').format(self.name)}"

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each of its files."""
        words = {**vars(self), "folder": self.folder, "module": self.module, "entry_point": self.entry_point}
        yield "pyproject.toml", _filled("pyproject.toml", words)
        yield f"{self.module}.py", _filled(f"{self.kind}.py", words)
        yield f"tests/test_{self.module}.py", _filled(f"test_{self.kind}.py", words)

    def check(self, taken: Container[str]) -> None:
        """Raise BadValue for a name that cannot be one, or is edgeflock's own."""
        if not _NAME.fullmatch(self.name) or len(self.name) > _LONGEST:
            words = f"small letters and digits, with - or _ between them, at most {_LONGEST}: better-avg"
            raise BadValue("NAME", self.name, words)
        if self.name in taken:
            raise BadValue("NAME", self.name, f"a name that no {self.kind} has yet")

    def write(self, folder: Path) -> list[Path]:
        """Write the package into a folder that is not there yet; return its files. Raises UsageError."""
        try:
            folder.mkdir(parents=True)
            written = []
            for name, text in self.files():
                path = folder / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, "utf-8")
                written.append(path)
            return written
        except FileExistsError:
            raise UsageError(f"{folder} is there already: give another --out") from None
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from None


def _filled(name: str, words: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{name}.txt").read_text("utf-8")).substitute(words)
