"""The server's time line: at any instant it does exactly one thing for one round. Pure."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from edgeflock.common.time_line import TimeLine
from edgeflock.server.costs import catalogue

GATHER, SELECT, OPEN = catalogue.GATHER.name, catalogue.SELECT.name, catalogue.OPEN.name
FOLD, COMMIT, EVALUATE = catalogue.FOLD.name, catalogue.COMMIT.name, catalogue.EVALUATE.name
PAUSED = catalogue.PAUSED.name
HELD, EXAM = catalogue.HELD.name, catalogue.EXAM.name
OF_A_ROUND = catalogue.names(catalogue.TIME_LINE)
BESIDE = catalogue.names(catalogue.BESIDE)

Seconds = Mapping[int, Mapping[str, float]]  # by round, then by name

_MOST = 64  # amounts that wait to be counted


class RoundTimes:
    """Seconds by round and name, until they are written. Busy seconds stand beside the line, not in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = TimeLine[tuple[str, int]]((GATHER, 0), clock)  # of which round, the first `enter` tells
        self._entered = GATHER, 0
        self._instead = ""  # it does this, whatever is entered
        self._noted: list[tuple[int, str, float]] = []  # counted in what follows when that is asked for
        self._unwritten: dict[int, defaultdict[str, float]] = {}
        self._all: dict[int, defaultdict[str, float]] = {}  # of the last rounds, in this life
        self._counted = 0.0  # seconds of rounds, in this life
        self.exams: set[int] = set()  # rounds that are nothing but tests of clients' own models

    def enter(self, name: str, round: int) -> None:
        """From now on it is this that the server does."""
        self._entered = name, round
        doing = self._instead or name, round
        if round in self.exams and doing[0] in OF_A_ROUND:
            doing = EXAM, round
        if doing != self._line.doing:
            self._line.enter(doing)
            self._cut(round)

    @contextlib.contextmanager
    def instead(self, name: str) -> Iterator[None]:
        """Within this the server does that, whatever it enters meanwhile."""
        self._instead = name
        self._enter_again()
        try:
            yield
        finally:
            self._instead = ""
            self._enter_again()

    def _enter_again(self) -> None:
        doing = self._line.doing
        if doing is not None and doing[1]:  # else there is no round yet, or none any more
            self.enter(*self._entered)

    def leave(self) -> None:
        """The run is over: nothing more is counted."""
        self._line.enter(None)
        self._cut()

    def add(self, round: int, name: str, amount: float) -> None:
        """Count something of a round; also what is beside the line."""
        self._noted.append((round, name, amount))
        if len(self._noted) > _MOST:
            self._count()

    def _count(self) -> None:
        for round, name, amount in self._noted:
            for books in (self._unwritten, self._all):
                books.setdefault(round, defaultdict(float))[name] += amount
            self._counted += amount if name in OF_A_ROUND else 0.0
        self._noted.clear()

    def move(self, round: int, source: str, target: str, seconds: float) -> None:
        """What was counted as one was another; a round of tests alone has nothing that could be."""
        if round in self.exams:
            return
        self.add(round, source, -seconds)
        self.add(round, target, seconds)

    @property
    def counted_s(self) -> float:
        """The seconds of rounds in this life, up to the last `now`."""
        self._count()
        return self._counted

    @property
    def seconds(self) -> float:
        """The same up to this instant."""
        since = sum(spent for (name, _), spent in self._line.spent().items() if name in OF_A_ROUND)
        return self.counted_s + since

    @property
    def running(self) -> bool:
        """Whether this is the time of a round."""
        return self._line.doing is not None and self._line.doing[0] in OF_A_ROUND

    def now(self) -> None:
        """Count what was done up to now."""
        self._cut()

    def _cut(self, first: int = 0) -> None:
        for (name, round), seconds in self._line.take().items():
            self.add(round or first, name, seconds)

    def of(self, round: int) -> dict[str, float]:
        """Return the line of a round as far as this life knows it; older rounds are forgotten."""
        self._count()
        for old in [number for number in self._all if number < round - 1]:
            del self._all[old]
        known: Mapping[str, float] = self._all.get(round, {})
        return {name: known[name] for name in (*BESIDE, *OF_A_ROUND) if known.get(name)}

    def take(self) -> Seconds:
        """Return what is not written yet; `give_back` undoes it."""
        self._count()
        taken, self._unwritten = self._unwritten, {}
        return taken

    def give_back(self, taken: Seconds) -> None:
        for round, values in taken.items():
            books = self._unwritten.setdefault(round, defaultdict(float))
            for name, amount in values.items():
                books[name] += amount
