"""`python -m benchmarks.switched MARKS fl-server ...`: a daemon that meters every other block of rounds.

No user wants such a switch: budgets, reports and the books themselves need the meters. So there is none; here
the meters' own functions are put behind a gate which opens and closes with the number of the round.
Each round leaves a line in MARKS: its number, the time, the CPU time of the process, and that of its meters.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

BLOCK = 5  # rounds


class Mode(IntEnum):
    """What is done with the meters."""

    OFF = 0
    ON = 1
    TIMED = 2  # on, and it is noted how long they take


_TURNS = (Mode.OFF, Mode.ON, Mode.OFF, Mode.TIMED)


def mode(round: int) -> Mode:
    """Return the mode of a round: that of its block."""
    return _TURNS[(round - 1) // BLOCK % len(_TURNS)]


class _Thread(threading.local):
    """What a thread does."""

    inside = False  # a meter; another one within it is part of it


class Gate:
    """Off: in place of what it guards something else is called."""

    def __init__(self, marks: Path) -> None:
        self._mode = Mode.ON
        self._marks = marks.open("w", buffering=1)
        self._thread = _Thread()
        self._spent: list[float] = []  # appended by any thread

    def at(self, round: int) -> None:
        """A round begins."""
        self._mode = mode(round)
        spent = sum(self._spent)
        self._marks.write(f"{round} {time.monotonic()} {time.process_time()} {spent}\n")

    def close(self) -> None:
        self._marks.close()

    def guard(self, owner: Any, name: str, instead: Callable[..., Any] | None = None) -> None:
        """Put a function or method behind this gate; without something instead it is only timed."""
        real = getattr(owner, name)

        @functools.wraps(real)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self._mode is Mode.TIMED and not self._thread.inside:
                return self._timed(real, *args, **kwargs)
            return (instead if instead and self._mode is Mode.OFF else real)(*args, **kwargs)

        setattr(owner, name, guarded)

    def _timed(self, meter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._thread.inside = True
        before, began = time.thread_time(), time.thread_time()
        try:
            return meter(*args, **kwargs)
        finally:
            ended = time.thread_time()
            self._thread.inside = False
            self._spent.append(ended - began - (began - before))  # without what a look at the clock takes

    def follow(self, owner: Any, name: str, round_of: Callable[..., int]) -> None:
        """Look at the round that a coroutine begins with."""
        real: Callable[..., Awaitable[Any]] = getattr(owner, name)

        @functools.wraps(real)
        async def followed(*args: Any, **kwargs: Any) -> Any:
            self.at(round_of(*args))
            return await real(*args, **kwargs)

        setattr(owner, name, followed)


def _no(*_: Any, **__: Any) -> None:
    return None


def _nothing(*_: Any, **__: Any) -> dict[str, Any]:
    return {}


def server(gate: Gate) -> None:
    """Guard traffic, time line, books, their rows, and what is kept of budgets that nobody has set."""
    from edgeflock.server.costs import ledger, rows, traffic
    from edgeflock.server.costs.time_line import RoundTimes
    from edgeflock.server.engine import committing, engine
    from edgeflock.server.engine.bookkeeping import Bookkeeping
    from edgeflock.server.engine.loop import Loop
    from edgeflock.server.journal import costs
    from edgeflock.server.service import aggregator, upload

    @contextlib.contextmanager
    def idle(*_: Any) -> Iterator[rows.LateCosts]:
        yield rows.LateCosts()

    gate.follow(engine, "open_round", lambda _, __, effect, **___: int(effect.round))
    for name in ("sent", "received"):
        gate.guard(traffic.Traffic, name, _no)
    for name in ("enter", "add", "now", "move"):
        gate.guard(RoundTimes, name, _no)
    gate.guard(Loop, "_follow", _no)
    gate.guard(Bookkeeping, "add_late", _no)
    gate.guard(Bookkeeping, "grown", lambda *_: False)
    gate.guard(Bookkeeping, "server_use", _nothing)
    gate.guard(ledger.Ledger, "rows", lambda _, round, __: rows.RoundRows(round, {}, {}, {}))
    gate.guard(ledger.Ledger, "writing", idle)
    gate.guard(upload, "of_training", _nothing)
    gate.guard(aggregator, "of_round", _nothing)
    gate.guard(costs, "write", _no)
    gate.guard(committing, "canonical_line")


def client(gate: Gate) -> None:
    """Guard time line, CPU and memory, sensors, and the reports of a round's costs."""
    from edgeflock.client.costs import Readings
    from edgeflock.client.link.account import Account
    from edgeflock.client.training import desk
    from edgeflock.client.training.gauge import Gauge
    from edgeflock.client.training.meter import Meter

    gate.follow(desk.Desk, "train", lambda _, task, *__: int(task.round))
    gate.guard(Meter, "enter", _no)
    gate.guard(Meter, "worked", _no)
    gate.guard(Meter, "read", lambda *_: Readings())
    gate.guard(Gauge, "look", _no)
    gate.guard(Account, "owe", _no)
    gate.guard(Account, "_tell")
    gate.guard(desk, "peak_rss_bytes", lambda: 0)


def main() -> None:
    """Run the daemon behind its gate."""
    marks, name, *arguments = sys.argv[1:]
    gate = Gate(Path(marks))
    sys.argv = [name, *arguments]
    if name == "fl-server":
        from edgeflock.server.cli import main as run

        server(gate)
    else:
        from edgeflock.client.cli import main as run

        client(gate)
    run()


if __name__ == "__main__":
    main()
