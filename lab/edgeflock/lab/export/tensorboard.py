"""A run's figures as TensorBoard event files."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeflock.lab.export.feed import scalars
from edgeflock.server.journal.reader import Event

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

_CURSOR = ".cursor"  # the last event of the run that is in the files


class EventFiles:
    """The event files of a directory; each life of this command adds one when there is something to write."""

    def __init__(self, run_dir: Path, place: Path) -> None:
        self._place = place

    @property
    def cursor(self) -> int:
        """The last event of the run that is in the files."""
        try:
            return int((self._place / _CURSOR).read_text("utf-8"))
        except (OSError, ValueError):
            return 0

    @property
    def words(self) -> str:
        """Where they are, and how they are seen."""
        return f"{self._place}; see them with: tensorboard --logdir {self._place}"

    @cached_property
    def _writer(self) -> EventFileWriter:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        return EventFileWriter(str(self._place))

    def add(self, event: Event) -> int:
        """Write the figures of an event and return how many there were."""
        found = [{"tag": tag, "simple_value": value} for tag, value in scalars(event)]
        step = int(event.number("round") or 0)
        if event.name == "run_started":  # rounds after this one, if there were any, do not count any more
            self._write(wall_time=event.at, step=step + 1, session_log={"status": "START"})
        elif found:
            self._write(wall_time=event.at, step=step, summary={"value": found})
        return len(found)

    def _write(self, **fields: Any) -> None:
        from tensorboard.compat.proto import event_pb2

        entry = event_pb2.Event(**fields)  # pyright: ignore[reportAttributeAccessIssue] - made at import
        self._writer.add_event(entry)

    def keep(self, cursor: int) -> None:
        """Bring what was added to the disk, and note how far that is."""
        self._writer.flush()
        (self._place / _CURSOR).write_text(f"{cursor}\n", "utf-8")

    def conclude(self) -> None:
        """Nothing more: event files hold no models."""

    def close(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.close()
