"""fl-lab tensorboard: a run's figures as TensorBoard event files, also while it goes on."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from edgeflock.common.command import extras
from edgeflock.common.errors import UsageError
from edgeflock.server.journal.reader import Event, Feed, require

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

PLACE = Path("report") / "tensorboard"
_CURSOR = ".cursor"  # the last event of the run that is in the files
_INTERVAL_S = 1.0
_COMMITTED = {"round_committed": "round", "last_round_committed": "closing"}

Scalar = tuple[str, float]


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on with every new round until the run has ended.")
@click.option("--attached", is_flag=True, hidden=True, help="Follow only as long as standard input is open.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help=f"Where to.  [default: RUN/{PLACE}]"
)
def tensorboard(run: Path, follow: bool, attached: bool, out: Path | None) -> int:
    """Write rounds, evaluations and costs of the run directory RUN for TensorBoard.

    Called again it writes only what is new.
    """
    extras.require("this command", "tensorboard")
    require(run)
    place = out or run / PLACE
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {str(place)!r} cannot be made: {error.strerror}") from None
    with closing(Feed(run, _cursor(place))) as feed, closing(_Files(place)) as files:
        count = write(feed, files, _Patience(attached) if follow else None)
    click.echo(f"{count} new scalars in {place}; see them with: tensorboard --logdir {place}")
    return 0


def write(feed: Feed, files: _Files, patience: _Patience | None) -> int:
    """Write what the files do not hold yet, with patience on to the run's end; return how many scalars."""
    count = 0
    while True:
        # Asked before reading: what is there by now is written.
        last = patience is None or patience.over or feed.over()
        for event in (new := feed.read()):
            count += files.add(event)
        if new:
            files.keep(feed.cursor)
        if last or patience is None:
            return count
        patience.wait()


class _Patience:
    """How long a run is followed: until a signal comes, or the end of standard input where that counts."""

    def __init__(self, attached: bool) -> None:
        self.over = False
        self._watched = [sys.stdin] if attached else []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def wait(self) -> None:
        if not self.over:
            self.over = bool(select.select(self._watched, [], [], _INTERVAL_S)[0]) or self.over

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.over = True


def scalars(event: Event) -> Iterator[Scalar]:
    """Yield the figures of an event, by tag."""
    if event.name in _COMMITTED:
        group = _COMMITTED[event.name]
        for name in event.fields:
            if name != "round" and (value := event.number(name)) is not None:
                yield f"{group}/{name}", value
        for name, (used, limit) in event.fields.get("budget", {}).items():
            yield f"budget/{name}", used / limit
    elif event.name == "evaluated":
        model = str(event.fields.get("model", "global"))
        for name in event.fields:
            if name not in ("round", "model") and (value := event.number(name)) is not None:
                yield f"{name}/{model}", value


def _cursor(place: Path) -> int:
    try:
        return int((place / _CURSOR).read_text("utf-8"))
    except (OSError, ValueError):
        return 0


class _Files:
    """The event files of a directory; each life of this command adds one when there is something to write."""

    def __init__(self, place: Path) -> None:
        self._place = place

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

    def close(self) -> None:
        if "_writer" in self.__dict__:
            self._writer.close()
