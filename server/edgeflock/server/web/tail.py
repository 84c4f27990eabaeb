"""What is new in the journal since the last look: by cursors, never the whole again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.server.costs.catalogue import together
from edgeflock.server.costs.time_line import OF_A_ROUND
from edgeflock.server.journal.reader import Event, Growth, Reader, SeatRow, begun

COMMITTED = ("round_committed", "last_round_committed")
_PAGE = 5000  # events of one look; a long run is caught up with in several
_UNSETTLED = 3  # rows of each client, at most: that of the open round, and two to which it may still add
_MOST_UNSETTLED = 20_000  # rows, the last ones: what is older than all of these is settled
_UNSETTLED_LINES = 400  # rows of rounds: those of the last two, and more
_AT_A_TIME = 10_000  # rows that are asked for


@dataclass
class News:
    """What one look found."""

    events: list[Event] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    seats: list[SeatRow] = field(default_factory=list)  # all, if one has changed
    settled: dict[int, Growth] = field(default_factory=dict)  # costs to be added for good, by seat
    recent: dict[int, Growth] = field(default_factory=dict)  # costs that may still grow, by seat
    lines: dict[int, dict[str, float]] = field(default_factory=dict)  # whole time lines, by round
    seconds: dict[str, float] = field(default_factory=dict)  # of the server in all, by name
    verdicts: list[tuple[int, str, int, int]] = field(
        default_factory=list
    )  # seat, verdict, how many, newest round
    more: bool = False  # look again at once


class Tail:
    """The cursors into one journal. `look` is for one thread at a time."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._reader: Reader | None = None
        self._seen = -1  # the journal's count of changes
        self._cursor = self._verdict = self._cost = 0
        self._open: dict[int, list[int]] = {}  # the last rows of each client, by seat
        self._seconds: dict[str, float] = {}  # settled
        self._row = 0  # up to that row
        self._epoch = self._line = 0  # the last round whose time line is whole, and its epoch
        self._seats = 0, 0.0  # what they were like
        self._told = 0, 0  # epoch and newest committed round that the events were about

    def look(self) -> News | None:
        """Return what is new, or None if nothing is. Raises BadData if the journal cannot be read."""
        self._reader = self._reader or begun(self._run_dir)
        if self._reader is None:
            return None
        changes = self._reader.changes()
        if changes == self._seen:
            return None
        with self._reader.moment():
            news = self._read(self._reader)
        self._seen = -1 if news.more else changes
        return news

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _read(self, reader: Reader) -> News:
        news = News(meta=reader.meta(), events=reader.events(self._cursor, _PAGE))
        news.more = len(news.events) == _PAGE
        self._cursor = news.events[-1].cursor if news.events else self._cursor
        self._told = _told(self._told, news.events)
        self._read_lines(reader, *self._told, news)
        if not news.more:  # what follows is of use only with the newest events
            news.seats = self._read_seats(reader)
            newest = reader.last_verdict(self._verdict)
            news.verdicts = reader.verdicts_since(self._verdict, newest)
            self._verdict = newest
            self._read_costs(reader, news)
            self._read_seconds(reader, news)
        return news

    def _read_seats(self, reader: Reader) -> list[SeatRow]:
        """Return all seats if one of them has changed."""
        before, self._seats = self._seats, reader.seats_stamp()
        return reader.seats() if self._seats != before else []

    def _read_lines(self, reader: Reader, epoch: int, told: int, news: News) -> None:
        """Read the time lines that are whole now, of rounds of which there were events.

        What a commit itself takes is written with the next.
        """
        after = self._line if epoch == self._epoch else 0
        upto = min(told, reader.newest(epoch) - ("ended_kind" not in news.meta))
        for (_, round), costs in reader.round_costs(epoch, after, upto).items():
            if line := {name: seconds for name, seconds in costs.items() if name in OF_A_ROUND}:
                news.lines[round] = line
        self._epoch, self._line = epoch, max(after, upto)

    def _read_seconds(self, reader: Reader, news: News) -> None:
        """Sum the server's seconds: rounds that were discarded, or never opened, took some too."""
        newest = reader.last_line(self._row)
        border = max(self._row, newest - _UNSETTLED_LINES)
        self._seconds = together((self._seconds, reader.time_line(self._row, border)))
        self._row = border
        news.seconds = together((self._seconds, reader.time_line(border, newest)))

    def _read_costs(self, reader: Reader, news: News) -> None:
        """Sum rows that nobody changes any more once, and those that may grow every time."""
        border = max(self._cost, reader.last_cost(self._cost) - _MOST_UNSETTLED)
        news.settled = reader.costs_since(self._cost, border)
        for number, seat in reader.cost_rows(border):
            self._open.setdefault(seat, []).append(number)
            self._cost = number
        settled = self._settle(
            reader.whole_costs([number for mine in self._open.values() for number in mine])
        )
        _add(reader, news.settled, settled)
        _add(reader, news.recent, [number for mine in self._open.values() for number in mine])

    def _settle(self, whole: Collection[int]) -> list[int]:
        """Take from the first rows of every client those that are whole, and all but the last few."""
        settled = []
        for seat, mine in list(self._open.items()):
            while mine and (mine[0] in whole or len(mine) > _UNSETTLED):
                settled.append(mine.pop(0))
            if not mine:
                del self._open[seat]
        return settled


def _add(reader: Reader, sums: dict[int, Growth], rows: Sequence[int]) -> None:
    """Add what these rows have to the sums by seat."""
    for first in range(0, len(rows), _AT_A_TIME):
        for seat, more in reader.costs_of(rows[first : first + _AT_A_TIME]).items():
            before = sums.get(seat)
            sums[seat] = Growth(together((before.sums, more.sums)), more.newest) if before else more


def _told(before: tuple[int, int], events: Iterable[Event]) -> tuple[int, int]:
    """Return the epoch in which the run is after these events, and its newest committed round."""
    epoch, newest = before
    for event in events:
        if event.name == "epoch_raised":
            epoch, newest = int(event.fields["epoch"]), int(event.fields["round"])
        elif event.name in COMMITTED:
            newest = max(newest, int(event.fields["round"]))
    return epoch, newest
