"""The spool: updates as they arrive, on disk, so that a cut upload goes on and a crash loses nothing.

Per member two files. `NNNNNN.data` is the payload, reserved at its full size when the round opens;
`NNNNNN.log`
is the update's header and one mark (end, running checksum) for every chunk: the payload is good up
to the last mark whose checksum it has, and before the first that is none. Files of the round before last are
used again: writing into pages that exist costs a quarter of writing into new ones, and a file system may look
long for the place of a new file where many have just been removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import Buffer, extend
from edgeflock.common.payload.description import CorruptDescription, Description

_MARK = struct.Struct("<QI")
_NO_MARK = bytes(_MARK.size)  # behind the last one: what follows is of a round before
_HEAD = struct.Struct("<II")  # size and checksum of the header that follows
_READ_BYTES = 4 << 20
_OTHERS_S = 1.0  # for a write that was cut off to be through


class Arrival:
    """One update on its way into the spool: how much of it is here, and good.

    Threads write it, one at a time. Whoever waits for it may give it up at any time and need not wait for
    them: what a thread still writes then counts nowhere, and the files become nobody else's before it is
    done with them.
    """

    def __init__(self, files: SpoolFiles, header: bytes = b"", before: Arrival | None = None) -> None:
        self.header = header  # the update's description as it is stored
        self.held = 0
        self.running = 0
        self.complete = False
        self._files, self._before = files, before  # what came here before, and may be written still
        self._data: int | None = None
        self._log: int | None = None
        self._log_end = 0  # where the next mark goes
        self._given_up = False
        self._writing = threading.Lock()  # for threads alone: a disk may hold it for long

    def note(self) -> None:
        """Write down the header of an update without a payload. Raises OSError as `append` does."""
        with self._alone():
            self._data, self._log = self._open()
            self._close()

    def append(self, offset: int, data: Buffer, checksum: int, last: bool = False) -> None:
        """Write the next chunk; the last one gives the descriptors back.

        Raises CorruptPayload if it does not continue the payload, OSError if the disk will not take it:
        EAGAIN if it has not taken yet what came before, or if nobody waits for this any more.
        """
        with self._alone():
            self._append(offset, data, checksum)
            if last:
                self._close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Within this, no other thread writes it. A disk that stands still shall not take all threads."""
        if not self._writing.acquire(timeout=_OTHERS_S):
            raise BlockingIOError(errno.EAGAIN, "the disk has not taken what came before")
        try:
            if self._given_up:
                raise BlockingIOError(errno.EAGAIN, "nobody waits for it any more")
            yield
        finally:
            self._writing.release()
            if self._given_up:
                self.release()

    def _append(self, offset: int, data: Buffer, checksum: int) -> None:
        running = extend(self.running, data)
        if offset != self.held or running != checksum:
            raise CorruptPayload(f"the chunk at {offset} does not continue the {self.held} bytes held")
        if self._data is None or self._log is None:
            self._data, self._log = self._open()
        _pwrite(self._data, data, offset)
        mark = _MARK.pack(offset + len(data), running)
        _pwrite(self._log, mark + _NO_MARK, self._log_end)  # over what a full disk left of an attempt before
        self._log_end += len(mark)
        self.held += len(data)
        self.running = running

    def _open(self) -> tuple[int, int]:
        """Open both files; with nothing held, the log begins anew with the header."""
        self._close()
        self._make_room()
        with contextlib.ExitStack() as undo:  # a full disk may be met many times
            data = os.open(self._files.data, os.O_WRONLY | os.O_CREAT, 0o600)
            undo.callback(os.close, data)
            log = os.open(self._files.log, os.O_WRONLY | os.O_CREAT, 0o600)
            undo.callback(os.close, log)
            if not self.held:
                head = _HEAD.pack(len(self.header), extend(0, self.header)) + self.header
                _pwrite(log, head + _NO_MARK, 0)
                self._log_end = len(head)
            undo.pop_all()
        return data, log

    def _make_room(self) -> None:
        """Leave files that somebody still writes to to him, and make others in their place."""
        if self._before is not None:
            self._before.release()
            if self._before.being_written:  # it is given up: nobody begins to
                self._files.renew()
        self._before = None

    def followed_by(self, header: bytes) -> Arrival:
        """Give this one up, without waiting, for another that comes to the same place."""
        self._given_up = True
        return Arrival(self._files, header, self if self.unreleased else None)

    def give_up(self) -> None:
        """Take no more bytes; `release`, in a thread, gives back what is open."""
        self._given_up = True

    @property
    def being_written(self) -> bool:
        """Whether a thread is at its files now, for it or for what it followed."""
        return self._writing.locked() or (self._before is not None and self._before.being_written)

    @property
    def unreleased(self) -> bool:
        """Whether files of it, or of what it followed, are open."""
        return self._writing.locked() or self._data is not None or self._before is not None

    def release(self) -> None:
        """Give the descriptors of what was given up back; who still writes does so himself."""
        if (before := self._before) is not None:
            before.release()
        if self._given_up and self._writing.acquire(blocking=False):
            self._close()
            self._writing.release()

    def _close(self) -> None:
        for descriptor in (self._data, self._log):
            if descriptor is not None:
                os.close(descriptor)
        self._data = self._log = None

    def recover(self) -> None:
        """Read what a previous process left: the header, and the payload up to the last good mark."""
        try:
            log = Path(self._files.log).read_bytes()
            size, checksum = _HEAD.unpack_from(log)
        except (FileNotFoundError, struct.error):
            return
        header = log[_HEAD.size : _HEAD.size + size]
        if len(header) != size or extend(0, header) != checksum:
            return
        self.header = header
        good = self._check_marks(log[_HEAD.size + size :])
        self._log_end = _HEAD.size + size + good * _MARK.size
        os.truncate(self._files.log, self._log_end)

    def _check_marks(self, marks: bytes) -> int:
        """Follow the marks through the payload; return how many hold."""
        good = 0
        with open(self._files.data, "rb", buffering=0) as data:
            for end, checksum in _whole_marks(marks):
                running = _extend_from(data.fileno(), self.running, self.held, end)
                if end <= self.held or running != checksum:
                    break
                self.held, self.running, good = end, checksum, good + 1
        return good


@dataclass(frozen=True)
class SpoolFiles:
    """Where one member's update lies: two files; that of the payload has its size from the beginning."""

    data: str
    log: str
    size_bytes: int = 0

    def reserve(self) -> None:
        """Raises OSError (ENOSPC) when the disk is full."""
        _reserve(self.data, self.size_bytes)

    def renew(self) -> None:
        """Make other files of the same names: who still writes to those that were here spoils nothing."""
        for path in (self.data, self.log):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.reserve()


class SpoolEntry:
    """One member's update in the spool; what is asked and decided here never waits for a disk."""

    def __init__(self, files: SpoolFiles) -> None:
        self.files = files
        self.arrival = Arrival(files)

    @property
    def data_path(self) -> str:
        return self.files.data

    @property
    def header(self) -> bytes:
        return self.arrival.header

    @property
    def held(self) -> int:
        return self.arrival.held

    @property
    def running(self) -> int:
        return self.arrival.running

    @property
    def complete(self) -> bool:
        return self.arrival.complete

    def begin(self, header: bytes) -> Arrival:
        """Take an update's header; return what is here of it, to be continued."""
        if header != self.header:
            self.arrival = self.arrival.followed_by(header)
        return self.arrival

    def description(self, round: int) -> Description | None:
        """Return what is held; None if it is nothing, cannot be read, or is of another round.

        After a power cut the spool of a round may hold what its files held two rounds before.
        """
        try:
            found, _ = Description.from_bytes(self.header)
        except CorruptDescription:
            return None
        return found if found.round == round else None

    def whole(self, round: int) -> bool:
        """Whether an update of that round is here to its end."""
        described = self.description(round)
        if described is None:
            return False
        package = described.package
        return self.held == package.size_bytes and self.running == package.crc32c

    def forget(self, arrival: Arrival | None = None) -> None:
        """Start again at 0 with the next header; what is complete and checked stays.

        If it is about one that another has followed, nothing is to be done.
        """
        if not self.complete and arrival in (None, self.arrival):
            self.arrival = self.arrival.followed_by(b"")

    def finish(self) -> None:
        """Mark the payload as complete and checked; nothing more is written."""
        self.arrival.complete = True

    def lies_at(self, path: str, header: bytes) -> None:
        """The update is in a file that somebody else has written, to its end, and now leaves alone."""
        self.arrival.give_up()
        self.files = SpoolFiles(path, self.files.log)
        self.arrival = Arrival(self.files, header)
        self.arrival.complete = True

    def retire(self) -> None:
        """Take no more bytes, the round is over: its files may become those of another."""
        self.arrival.give_up()


@dataclass
class Spool:
    """The `spool/` directory: one folder a round."""

    root: Path
    reserves: bool = True  # else room is taken as bytes come: most come elsewhere
    beside: tuple[Path, ...] = ()  # spools of gates that lived before: what is whole there is here
    _lent: dict[int, dict[int, SpoolEntry]] = field(default_factory=dict, init=False)  # by round and seat

    def prepare(self, round: int, members: Collection[int], size_bytes: int) -> dict[int, SpoolEntry]:
        """Reserve space for every member's update and return the entries, with what they already hold.

        Raises OSError (ENOSPC) when the disk is full; call again later.
        """
        folder = self._folder(round)
        begun = os.path.exists(folder)
        if not begun:
            self._recycle(round - 2, folder, members)
        self._remove_before(round - 1)
        entries = {seat: self._entry(round, seat, size_bytes) for seat in members}
        for entry in entries.values():
            entry.files.reserve()
            if begun:
                entry.arrival.recover()
        if begun and self.beside:
            entries |= self._whole_beside(round, members)
        self._lent.setdefault(round, {}).update(entries)
        return entries

    def scan(self, round: int, members: Collection[int]) -> dict[int, SpoolEntry]:
        """Return the entries of a round with what they hold, making nothing."""
        entries = {seat: self._entry(round, seat) for seat in members}
        for entry in entries.values():
            if os.path.exists(entry.data_path):
                entry.arrival.recover()
        return entries | self._whole_beside(round, members)

    def _whole_beside(self, round: int, members: Collection[int]) -> dict[int, SpoolEntry]:
        """Return what gates had of a round to its end."""
        found = {}
        for spool in map(Spool, self.beside):
            for seat in members:
                entry = spool._entry(round, seat)
                if os.path.exists(entry.files.log):
                    entry.arrival.recover()
                if entry.whole(round):
                    found[seat] = entry
        return found

    def _remove_before(self, round: int) -> None:
        """Remove what belongs to earlier rounds, which no recovery can need."""
        for name in os.listdir(self.root):
            number = name.partition(".")[0]
            if number.isdigit() and int(number) < round:
                shutil.rmtree(f"{self.root}/{name}", ignore_errors=True)

    def packages(self, round: int) -> str:
        """Return the folder for what is encoded to go down in a round."""
        return f"{self._folder(round)}.packages"

    def forget(self, round: int) -> None:
        """Remove what has come in a round."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._folder(round))

    def clear(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def _folder(self, round: int) -> str:
        """Return the folder of a round, as text, see `checkpoints`."""
        return f"{self.root}/{round:06d}"

    def _entry(self, round: int, seat: int, size_bytes: int = 0) -> SpoolEntry:
        folder, size = self._folder(round), size_bytes if self.reserves else 0
        return SpoolEntry(SpoolFiles(f"{folder}/{seat:06d}.data", f"{folder}/{seat:06d}.log", size))

    def _recycle(self, old: int, folder: str, members: Collection[int]) -> None:
        """Make the folder of a round out of an old one: its files are used again, by whomever."""
        building, lent = f"{self.root}/.new", self._lent.pop(old, {})
        shutil.rmtree(building, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._folder(old), building)
        os.makedirs(building, exist_ok=True)
        spare: dict[str, list[str]] = {"data": [], "log": []}
        here, wanted = set(os.listdir(building)), {f"{seat:06d}" for seat in members}
        for name in sorted(here):
            number, _, kind = name.partition(".")
            if kind not in spare or _is_written(lent.get(int(number))):
                os.unlink(f"{building}/{name}")
                here.discard(name)
            elif number not in wanted:
                spare[kind].append(name)
        for kind, names in spare.items():
            for number in sorted(wanted):
                if names and (name := f"{number}.{kind}") not in here:
                    os.rename(f"{building}/{names.pop()}", f"{building}/{name}")
            for name in names:
                os.unlink(f"{building}/{name}")
        os.rename(building, folder)


def _is_written(entry: SpoolEntry | None) -> bool:
    """Whether a thread still writes to its files, for nobody."""
    return entry is not None and entry.arrival.being_written


def _reserve(path: str, size_bytes: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_size >= size_bytes:  # of a round before, which had reserved it
            return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if size_bytes and hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # a file system without reservation
            raise
    finally:
        os.close(descriptor)


def _whole_marks(marks: bytes) -> Iterator[tuple[int, int]]:
    yield from _MARK.iter_unpack(marks[: len(marks) // _MARK.size * _MARK.size])


def _extend_from(descriptor: int, running: int, start: int, end: int) -> int:
    while start < end:
        data = os.pread(descriptor, min(_READ_BYTES, end - start), start)
        if not data:
            return -1
        running = extend(running, data)
        start += len(data)
    return running


def _pwrite(descriptor: int, data: Buffer, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count
