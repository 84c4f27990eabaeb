"""What a disk may hold after a power cut, made from the calls that a process did before it.

Modelled, on the safe side of what journalling file systems do:

- Data that was written is on the disk for certain once an fsync or fdatasync of that file, begun after the
  write, has returned. Until then each of its sectors of 512 bytes is there or not, by itself: a write may
  be missing, torn, or overtaken by a later one. The size of a file may have grown, or shrunk, without
  that; what was never written reads as zeros. The same for a truncation.
- A name (created, renamed, removed; of a file or a directory) is on the disk for certain once an fsync of
  its directory has returned. Until then each of these changes is there or not, by itself, in whatever
  order; a rename as a whole. An fsync of a file says nothing of its name.
- Sectors are not torn themselves, and nothing that was flushed is lost again.

Not modelled: `-shm` of SQLite, which is written through a mapping and is no more than a cache. It is left out
of half of the states and holds what the calls wrote, mostly zeros, in the others. Sockets are left out.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias, cast

from support.filecalls import Call

SECTOR = 512


@dataclass
class File:
    """What is flushed, and what was done since: data at an offset, or a new size."""

    flushed: bytes = b""
    since: list[tuple[int, bytes] | int] = field(default_factory=list)
    size: int = 0  # as the process sees it

    def flush(self, count: int) -> None:
        self.flushed = _applied(self.flushed, self.since[:count])
        del self.since[:count]


@dataclass
class Folder:
    """The names as they are flushed, as the process sees them, and the changes in between."""

    flushed: dict[str, Node] = field(default_factory=dict)
    names: dict[str, Node] = field(default_factory=dict)
    since: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change.apply(self.names)
        self.since.append(change)

    def flush(self, count: int) -> None:
        for change in self.since[:count]:
            change.apply(self.flushed)
        del self.since[:count]


Node: TypeAlias = File | Folder


@dataclass(frozen=True)
class Change:
    """The name of a node from now on, be it new or renamed; without one, it is removed."""

    node: Node
    new: str = ""

    def apply(self, names: dict[str, Node]) -> None:
        for name in [name for name, node in names.items() if node is self.node]:  # there are no hard links
            del names[name]
        if self.new:
            names[self.new] = self.node


class Fate(StrEnum):
    """What becomes of everything that is not flushed."""

    LOST = "lost"
    KEPT = "kept"
    FIRST = "first"  # of each file or directory so many of the first changes are kept
    ANY = "any"  # each change or sector is kept or lost
    SIZE = "size"  # of files only: the sizes are kept, the data lost


@dataclass(frozen=True)
class Cut:
    """How the power cut treats names and data; the seed says the rest."""

    names: Fate
    data: Fate
    seed: int = 0


Image: TypeAlias = "dict[str, bytes | None]"  # by path; None is a directory


class Disk:
    """The files below one folder while calls are done to them."""

    def __init__(self, folder: Path, image: Image | None = None) -> None:
        self.root, self._prefix = _durable(image or {}), os.fsencode(folder)
        self._open: dict[int, tuple[Node, int]] = {}  # by descriptor: the position too
        self._flushing: dict[int, int] = {}  # by thread: how much had been done when it began

    def forget_process(self) -> None:
        """It is dead: its descriptors are no more."""
        self._open.clear()
        self._flushing.clear()

    # ------------------------------------------------------------------------------ calls

    def do(self, call: Call) -> bool:
        """Do a call; return whether it changed what a power cut may leave."""
        match call.name, call.arguments:
            case "openat", (_, self._prefix, *_):
                self._open[call.result] = self.root, 0
            case "openat", (int() | "AT_FDCWD" as at, bytes() as path, str() as flags, *_):
                return self._opened(self._place(at, path), flags, call.result)
            case "close", (int() as descriptor,):
                self._open.pop(descriptor, None)
            case "write", (int() as descriptor, bytes() as data, _):
                return self._write(descriptor, None, data[: call.result])
            case "pwrite64", (int() as descriptor, bytes() as data, _, int() as offset):
                return self._write(descriptor, offset, data[: call.result])
            case (("fsync" | "fdatasync"), (int() as descriptor,)):
                return self._flush(descriptor, call)
            case "ftruncate", (int() as descriptor, int() as size):
                return self._resize(self._node(descriptor), size)
            case "truncate", (bytes() as path, int() as size):
                return self._resize(self._at(*self._place("AT_FDCWD", path)), size)
            case "fallocate", (int() as descriptor, 0 | "0", int() as start, int() as length):
                node = self._node(descriptor)
                return isinstance(node, File) and self._resize(node, max(node.size, start + length))
            case _:
                return self._rename_or_refuse(call)
        return False

    def _rename_or_refuse(self, call: Call) -> bool:
        match call.name, call.arguments:
            case "rename", (bytes() as old, bytes() as new):
                return self._rename(self._place("AT_FDCWD", old), self._place("AT_FDCWD", new))
            case (("unlink" | "rmdir"), (bytes() as path,)):
                return self._remove(*self._place("AT_FDCWD", path))
            case "unlinkat", (int() | "AT_FDCWD" as at, bytes() as path, *_):
                return self._remove(*self._place(at, path))
            case "mkdir", (bytes() as path, *_):
                return self._make(*self._place("AT_FDCWD", path), Folder())
        assert not any(map(self._is_mine, call.arguments)), f"not modelled: {call}"
        return False

    def _is_mine(self, word: object) -> bool:
        path = isinstance(word, bytes) and word.startswith(self._prefix + b"/")
        return path or (isinstance(word, int) and word in self._open)

    def _place(self, at: int | str, path: bytes) -> tuple[Folder | None, str]:
        """Return the folder of a path and the last name in it; no folder: it is not ours."""
        if path.startswith(b"/"):
            here: Node | None = self.root if path.startswith(self._prefix + b"/") else None
            path = path[len(self._prefix) + 1 :]
        else:
            here = self._node(at)
        *folders, name = os.fsdecode(path).split("/")
        for step in folders:
            here = here.names.get(step) if isinstance(here, Folder) else None
        return (here if isinstance(here, Folder) else None), name

    def _at(self, folder: Folder | None, name: str) -> Node | None:
        return folder.names.get(name) if folder else None

    def _node(self, descriptor: int | str) -> Node | None:
        return self._open[descriptor][0] if descriptor in self._open else None

    def _opened(self, place: tuple[Folder | None, str], flags: str, descriptor: int) -> bool:
        self._open.pop(descriptor, None)
        folder, name = place
        if folder is None:
            return False
        node, new = folder.names.get(name), False
        if node is None:
            assert "O_CREAT" in flags, f"{name} is opened, nobody has made it"
            node, new = File(), True
            folder.change(Change(node, name))
        self._open[descriptor] = node, 0
        emptied = "O_TRUNC" in flags and isinstance(node, File) and node.size > 0
        return (emptied and self._resize(node, 0)) or new

    def _write(self, descriptor: int, offset: int | None, data: bytes) -> bool:
        node, position = self._open.get(descriptor, (None, 0))
        if not isinstance(node, File):
            return False
        start = position if offset is None else offset
        if offset is None:
            self._open[descriptor] = node, position + len(data)
        node.since.append((start, data))
        node.size = max(node.size, start + len(data))
        return True

    def _resize(self, node: Node | None, size: int) -> bool:
        if not isinstance(node, File) or node.size == size:
            return False
        node.since.append(size)
        node.size = size
        return True

    def _flush(self, descriptor: int, call: Call) -> bool:
        node = self._node(descriptor)
        if node is None:
            return False
        if call.begun:
            self._flushing[call.thread] = len(node.since)
            return False
        node.flush(self._flushing.pop(call.thread))
        return True

    def _make(self, folder: Folder | None, name: str, node: Node) -> bool:
        if folder is not None:
            folder.change(Change(node, name))
        return folder is not None

    def _remove(self, folder: Folder | None, name: str) -> bool:
        if folder is None or name not in folder.names:  # a socket
            return False
        folder.change(Change(folder.names[name]))
        return True

    def _rename(self, old: tuple[Folder | None, str], new: tuple[Folder | None, str]) -> bool:
        folder, name = old
        if folder is None:
            return False
        assert folder is new[0], "renames from one directory to another are not modelled"
        folder.change(Change(folder.names[name], new[1]))
        return True

    # ------------------------------------------------------------------------------ power cuts

    def after(self, cut: Cut) -> Image:
        """Return what is there when the power comes back."""
        dice = random.Random(cut.seed)
        image = dict(_walk(self.root, "", cut, dice))
        if dice.random() < 0.5:
            image = {path: content for path, content in image.items() if not path.endswith("-shm")}
        return image


def _durable(image: Image) -> Folder:
    """Return a tree of which everything is flushed."""
    root = Folder()
    for path, content in image.items():
        *folders, name = path.split("/")
        here = root
        for step in folders:
            here = cast(Folder, here.names[step])
        node = Folder() if content is None else File(content, size=len(content))
        here.names[name] = here.flushed[name] = node
    return root


def _walk(folder: Folder, path: str, cut: Cut, dice: random.Random) -> Iterator[tuple[str, bytes | None]]:
    names = dict(folder.flushed)
    for change in _chosen(folder.since, cut.names, dice):
        change.apply(names)
    for name, node in names.items():
        if isinstance(node, File):
            yield path + name, _content(node, cut.data, dice)
        else:
            yield path + name, None
            yield from _walk(node, f"{path}{name}/", cut, dice)


def _chosen(changes: list[Change], fate: Fate, dice: random.Random) -> list[Change]:
    match fate:
        case Fate.LOST:
            return []
        case Fate.FIRST:
            return changes[: dice.randint(0, len(changes))]
        case Fate.ANY:
            return [change for change in changes if dice.random() < 0.5]
        case _:
            return changes


def _content(file: File, fate: Fate, dice: random.Random) -> bytes:
    match fate:
        case Fate.LOST:
            return file.flushed
        case Fate.KEPT:
            return _applied(file.flushed, file.since)
        case Fate.FIRST:
            return _applied(file.flushed, file.since[: dice.randint(0, len(file.since))])
        case Fate.SIZE:
            return _applied(file.flushed, [file.size] if file.since else [])
    some = [piece for done in file.since for piece in _pieces(done) if dice.random() < 0.5]
    return _applied(file.flushed, [*some, file.size] if file.since and dice.random() < 0.5 else some)


def _pieces(done: tuple[int, bytes] | int) -> Iterator[tuple[int, bytes] | int]:
    """Cut a write where the disk's sectors end."""
    if isinstance(done, int):
        yield done
        return
    start, data = done
    while data:
        size = SECTOR - start % SECTOR
        yield start, data[:size]
        start, data = start + size, data[size:]


def _applied(content: bytes, changes: Iterable[tuple[int, bytes] | int]) -> bytes:
    made = bytearray(content)
    for change in changes:
        if isinstance(change, int):
            made = made[:change] + bytes(max(0, change - len(made)))
            continue
        start, data = change
        made.extend(bytes(max(0, start + len(data) - len(made))))
        made[start : start + len(data)] = data
    return bytes(made)


def read(folder: Path) -> Image:
    """Return what is below a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_dir() or path.is_file()]
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in paths}


def write(image: Image, folder: Path) -> None:
    """Make the files of an image below a folder."""
    for path, content in image.items():  # a directory comes before what is in it
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
