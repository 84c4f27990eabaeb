"""All that readers ask of a run's journal, in the run's words: read-only, from any thread.

A journal of an earlier version is read as if it had today's tables, and the directory is left as it is.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from edgeflock.common.errors import MissingData
from edgeflock.common.scores import ACCURACY, LOSS, Metric, Summary
from edgeflock.common.sensors import MODEL
from edgeflock.server.costs import catalogue
from edgeflock.server.costs.catalogue import Rule
from edgeflock.server.journal import costs
from edgeflock.server.journal.file import JournalFile, Unready, Value
from edgeflock.server.journal.past import Past
from edgeflock.server.journal.scores import COLUMNS, read_best, read_measures, summary_of

Key = tuple[int, int]  # of a round: epoch and number
Numbers = Mapping[str, float]
Held = tuple[str, str, str]  # direction, bundle kind and codec

_KEYS = {"round": "epoch, round", "client": "seat", "source": "seat, energy_source"}
_COLUMNS = catalogue.names(catalogue.BY_CLIENT)
_LINE = catalogue.names((*catalogue.BESIDE, *catalogue.TIME_LINE))
_ADDED = catalogue.names(column for column in catalogue.NUMBERS if column.rule is Rule.SUM)
_TOTALS = {
    **{name: f"{'max' if catalogue.is_highest(name) else 'sum'}({name})"
       for name in catalogue.names(catalogue.NUMBERS)},
    catalogue.SENSOR_J.name: f"sum(CASE WHEN energy_source IS NOT '{MODEL}' THEN energy_j END)",
    catalogue.MODEL_J.name: f"sum(CASE WHEN energy_source IS '{MODEL}' THEN energy_j END)",
}  # fmt: skip


@dataclass(frozen=True)
class Event:
    """One row of the feed."""

    cursor: int
    at: float  # seconds since 1970
    name: str
    fields: Mapping[str, Any]

    def number(self, key: str) -> float | None:
        """Return a field if it is a number."""
        value = self.fields.get(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class SeatRow(NamedTuple):
    """Who has a place."""

    number: int
    client: str
    samples: int | None  # unknown before it was ready


class RoundRow(NamedTuple):
    """A round as it was opened, or one from which a new epoch goes on: then nobody is in its cohort."""

    epoch: int
    number: int
    cohort: tuple[int, ...]  # seats, those that were added too
    last: str  # why training was over; empty: a round of training
    committed: bool
    stands: bool  # the run stands on it now: it is committed, and no later epoch has gone back on it


class CellRow(NamedTuple):
    """One client in one round."""

    seat: int
    client: str
    verdict: str  # on its update; empty: there is none yet
    costs: Mapping[str, Value]  # by column


class BundleRow(NamedTuple):
    """What bytes of one client in one round held."""

    seat: int
    client: str
    direction: str
    kind: str
    codec: str
    bytes: int


class Growth(NamedTuple):
    """What rows of the ledger add to one client."""

    sums: Mapping[str, float]
    newest: Mapping[str, Value]  # the last of these rows


def require(run_dir: Path) -> Path:
    """Return the directory if it is that of a run that can be read here.

    Raises MissingData if there is none, BadData with a sentence if its journal is no journal of ours.
    """
    Reader(run_dir).close()
    return run_dir


def begun(run_dir: Path) -> Reader | None:
    """Return a run's journal, None while there is none yet. Raises BadData if it cannot be read."""
    try:
        return Reader(run_dir)
    except (MissingData, Unready):
        return None


@contextlib.contextmanager
def snapshot(run_dir: Path) -> Iterator[Reader]:
    """Hand out the journal as it is now, whatever its server writes meanwhile; its decisions are checked.

    Raises what `require` does.
    """
    with contextlib.closing(Reader(run_dir)) as reader, reader.moment():
        reader.check()
        yield reader


class Feed:
    """Events of one run directory, also before there is a journal; `read` returns what came since."""

    def __init__(self, run_dir: Path, after: int = 0) -> None:
        self.cursor = after
        self._run_dir = run_dir
        self._reader: Reader | None = None

    def read(self) -> list[Event]:
        """Return the new events; none while there is no journal yet. Raises BadData if it cannot be read."""
        self._reader = self._reader or begun(self._run_dir)
        if self._reader is None:
            return []
        events: list[Event] = []
        with contextlib.suppress(Unready):
            events = self._reader.events(self.cursor)
        self.cursor = events[-1].cursor if events else self.cursor
        return events

    def over(self) -> bool:
        """Whether the run has ended, as its journal holds it: what is read after that holds its last word."""
        self._reader = self._reader or begun(self._run_dir)
        with contextlib.suppress(Unready):
            return self._reader is not None and self._reader.ended()
        return False

    def measures(self) -> tuple[Metric, ...]:
        """Return by what the run's models are judged."""
        self._reader = self._reader or begun(self._run_dir)
        return (ACCURACY, LOSS) if self._reader is None else self._reader.measures()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class Reader:
    """A run's journal. One question at a time; answers within a `moment` are of one moment.

    All raise BadData with a sentence if the journal cannot be read.
    """

    def __init__(self, run_dir: Path) -> None:
        """Open the journal; raises what `require` does."""
        self._file = JournalFile(run_dir)
        self._ask, self._one = self._file.ask, self._file.one
        self.path = self._file.path

    def close(self) -> None:
        self._file.close()

    def check(self) -> None:
        """Raise BadData unless every decision stands as it was written."""
        self._file.check()

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """Within this all answers are of one moment."""
        self._file.keep_up()
        self._file.connection.execute("BEGIN")
        try:
            yield
        finally:
            self._file.connection.execute("ROLLBACK")

    def changes(self) -> int:
        """Return a number that is another one after the server has written."""
        self._file.keep_up()
        return int(self._one("PRAGMA data_version"))

    # ---------------------------------------------------------------------------------------- events

    def events(self, after: int = 0, at_most: int = -1) -> list[Event]:
        """Return the events behind a cursor, so many of them if it is said how many."""
        return self._events("cursor > ?", (after,), "", at_most)

    def events_before(self, cursor: int, at_most: int, but: Collection[str] = ()) -> list[Event]:
        """Return the last events before a cursor, oldest first, without those of some names."""
        which = f"cursor < ? AND name NOT IN ({', '.join('?' for _ in but)})"
        return self._events(which, (cursor, *but), "DESC", at_most)[::-1]

    def _events(self, which: str, values: Iterable[Value], order: str, at_most: int) -> list[Event]:
        self._file.keep_up()
        question = (
            f"SELECT cursor, at, name, fields FROM events WHERE {which} ORDER BY cursor {order} LIMIT ?"
        )
        with self._file.readable():
            return [
                Event(int(cursor), float(at), str(name), _fields(text))
                for cursor, at, name, text in self._ask(question, *values, at_most)
            ]

    # ---------------------------------------------------------------- who, what was decided, what came of it

    def meta(self) -> dict[str, str]:
        """Return what is said of the run as a whole, by name."""
        return dict(self._ask("SELECT name, value FROM meta"))

    def ended(self) -> bool:
        """Whether the run is over."""
        self._file.keep_up()
        with self._file.readable():
            return "ended_kind" in self.meta()

    def epoch(self) -> int:
        """Return the newest epoch."""
        return int(self.meta().get("epoch", "0"))

    def used(self) -> dict[str, float]:
        """Return what is used of the budgets, as it counts for them."""
        with self._file.readable():
            return costs.read_used(self.meta())

    def seats(self) -> list[SeatRow]:
        return [
            SeatRow(*row) for row in self._ask("SELECT seat, client_id, samples FROM seats ORDER BY seat")
        ]

    def seats_stamp(self) -> tuple[int, float]:
        """Return what is another value after a seat has changed: their number and the sum of their seals."""
        (found,) = self._ask("SELECT count(*), total(seal) FROM seats")
        return found[0], found[1]

    def rounds(self) -> list[RoundRow]:
        """Return all rounds of all epochs."""
        columns = "epoch, round, cohort, extended, last, committed"
        with self._file.readable():
            return _standing(
                [
                    RoundRow(epoch, number, _members(cohort, added), last or "", bool(committed), False)
                    for epoch, number, cohort, added, last, committed in self._ask(
                        f"SELECT {columns} FROM rounds ORDER BY epoch, round"
                    )
                ],
                self.epoch(),
            )

    def every_round(self) -> list[Key]:
        """Return the rounds of which there is anything, costs of one that was never opened too."""
        tables = ("rounds", "round_costs")
        found = [self._ask(f"SELECT DISTINCT epoch, round FROM {table}") for table in tables]
        return sorted({*found[0], *found[1], *self._costs("epoch, round", by="epoch, round")})

    def newest(self, epoch: int) -> int:
        """Return the newest committed round of an epoch, 0 if there is none."""
        return self._one("SELECT max(round) FROM rounds WHERE epoch = ? AND committed = 1", epoch) or 0

    def trained(self) -> int:
        """Return the newest committed round of training, as the run stands now; 0 if there is none."""
        question = "SELECT max(round) FROM rounds WHERE epoch = ? AND committed = 1 AND last IS NULL"
        return self._one(question, self.epoch()) or 0

    def last_held(self, number: int) -> int | None:
        """Return the last epoch in which a round was opened, None if it never was."""
        found: int | None = self._one(
            "SELECT max(epoch) FROM rounds WHERE round = ? AND cohort <> '[]'", number
        )
        return found

    def digests(self, number: int) -> tuple[str, str] | None:
        """Return the digests of a committed round's model and state files, as the newest epoch knows them."""
        with self._file.readable():
            return Past(self._file.connection, self.epoch()).digests(number)

    def verdicts(self, by: Literal["round", "client"]) -> dict[Any, dict[str, int]]:
        """Return how often each verdict was given, by epoch and round or by seat."""
        found: dict[Any, dict[str, int]] = {}
        for *key, verdict, times, _ in self._verdicts(_KEYS[by]):
            found.setdefault(_key(key), {})[verdict] = times
        return found

    def verdicts_since(self, after: int, upto: int) -> list[tuple[int, str, int, int]]:
        """Return seat, verdict, how often and in which round last, of rows behind one and up to another."""
        return list(self._verdicts("seat", "rowid > ? AND rowid <= ?", after, upto))

    def last_verdict(self, after: int = 0) -> int:
        """Return the number of the newest row of verdicts; `after`, if none is newer."""
        return self._one("SELECT max(rowid) FROM outcomes WHERE rowid > ?", after) or after

    def _verdicts(self, keys: str, which: str = "true", *values: int) -> Iterator[Any]:
        counted = f"SELECT {keys}, verdict, count(*), max(round) FROM outcomes"
        return self._ask(f"{counted} WHERE {which} GROUP BY {keys}, verdict", *values)

    def evaluations(self) -> dict[Key, dict[str, Summary]]:
        """Return how models did, by round and by name."""
        found: dict[Key, dict[str, Summary]] = {}
        question = f"SELECT epoch, round, model, {COLUMNS} FROM evaluations"
        for epoch, number, model, *row in self._ask(question):
            with self._file.readable():
                found.setdefault((epoch, number), {})[model] = summary_of(*row)
        return found

    def measures(self) -> tuple[Metric, ...]:
        """Return by what the run's models are judged: its figure, its task's other metrics, the loss."""
        with self._file.readable():
            return read_measures(self._file.connection)

    def best(self) -> tuple[float, int] | None:
        """Return value and round of the best global model, None if none was tested."""
        with self._file.readable():
            return read_best(self._file.connection)

    def last_scores(self) -> dict[int, dict[str, Summary]]:
        """Return how clients' own models did in their last test, by seat and by name."""
        found: dict[int, dict[str, Summary]] = {}  # bare columns are of the row that has the maximum
        latest = "max(epoch * 1000000000 + round)"
        columns = f"seat, model, value, loss, samples, others, {latest}"
        for seat, model, value, loss, samples, others, _ in self._ask(
            f"SELECT {columns} FROM client_scores GROUP BY seat, model"
        ):
            with self._file.readable():
                summary = Summary(value, loss, samples, others=json.loads(others))
            found.setdefault(seat, {})[model] = summary
        return found

    # ---------------------------------------------------------------------------------------- what it cost

    def totals(self, by: Literal["round", "client", "source"]) -> dict[Any, dict[str, float]]:
        """Return what the rounds of clients have cost: sums, and of what does not add up the highest.

        By epoch and round, by seat, or by seat and source of energy.
        """
        found: dict[Any, dict[str, float]] = {}
        keys = _KEYS[by]
        for row in self._costs(f"{keys}, {', '.join(_TOTALS.values())}", by=keys):
            key, values = row[: -len(_TOTALS)], row[-len(_TOTALS) :]
            with self._file.readable():
                found[_key(key)] = _numbers(zip(_TOTALS, values, strict=True))
        return found

    def steps_each(self) -> dict[Key, float]:
        """Return how many local steps a client did in every round, on average over those that did any."""
        rows = self._costs(f"{_KEYS['round']}, avg(nullif(steps, 0))", by=_KEYS["round"])
        return {(epoch, number): mean for epoch, number, mean in rows if mean is not None}

    def cells(self, epoch: int, number: int) -> list[CellRow]:
        """Return every client that has a part in a round, by seat."""
        which = "epoch = ? AND round = ?"
        found: dict[int, tuple[str, Mapping[str, Value]]] = {}
        for seat, *values in self._costs(f"seat, {', '.join(_COLUMNS)}", which, epoch, number):
            found[seat] = "", dict(zip(_COLUMNS, values, strict=True))
        for seat, verdict, *_ in self._verdicts("seat", which, epoch, number):
            found[seat] = verdict, found[seat][1] if seat in found else {}
        clients = self._names(found)
        return [CellRow(seat, clients[seat], *found[seat]) for seat in sorted(found)]

    def _names(self, seats: Iterable[int]) -> dict[int, str]:
        """Return the ids of the clients that have these seats."""
        which = "SELECT seat, client_id FROM seats WHERE seat IN (SELECT value FROM json_each(?))"
        return dict(self._ask(which, json.dumps([*seats])))

    def costs_since(self, after: int, upto: int) -> dict[int, Growth]:
        """Return what rows of costs behind one and up to another add, by seat."""
        return self._growth("rowid > ? AND rowid <= ?", after, upto)

    def costs_of(self, rows: Collection[int]) -> dict[int, Growth]:
        """Return what these rows of costs add, by seat."""
        if not rows:
            return {}
        # As a value: a text of its own for every question would be compiled, and kept by SQLite, every time.
        return self._growth("rowid IN (SELECT value FROM json_each(?))", json.dumps([*rows]))

    def cost_rows(self, after: int) -> list[tuple[int, int]]:
        """Return number and seat of every row of costs behind one."""
        return list(self._costs("rowid, seat", "rowid > ? ORDER BY rowid", after))

    def whole_costs(self, rows: Collection[int]) -> set[int]:
        """Return which of these rows of costs have what their clients say last: nothing is added to them."""
        which = "rowid IN (SELECT value FROM json_each(?)) AND wait_s IS NOT NULL"
        return {number for (number,) in self._costs("rowid", which, json.dumps([*rows]))} if rows else set()

    def _growth(self, which: str, *values: Value) -> dict[int, Growth]:
        columns = [f"sum({name})" for name in _ADDED] + [*_COLUMNS]
        found = {}  # with one max() the bare columns are those of the row that has it
        for seat, _, *row in self._costs(
            f"seat, max(rowid), {', '.join(columns)}", which, *values, by="seat"
        ):
            sums = zip(_ADDED, row[: len(_ADDED)], strict=True)
            newest = zip(_COLUMNS, row[len(_ADDED) :], strict=True)
            found[seat] = Growth({name: total for name, total in sums if total is not None}, dict(newest))
        return found

    def last_cost(self, after: int = 0) -> int:
        """Return the number of the newest row of costs; `after`, if none is newer."""
        return next(self._costs("max(rowid)", "rowid > ?", after))[0] or after

    def _costs(self, columns: str, which: str = "true", *values: Value, by: str = "") -> Iterator[Any]:
        """The one question to the ledger of clients and rounds."""
        return self._ask(costs.question(columns, which, by), *values)

    def round_costs(
        self, epoch: int | None = None, after: int = -1, upto: int = 2**62
    ) -> dict[Key, dict[str, float]]:
        """Return what is said of rounds as a whole, of all of them or of those behind one and up to another.

        The server's time line and costs, the method's metrics, and what the method was told.
        """
        found: dict[Key, dict[str, float]] = {}
        some = " WHERE epoch = ? AND round > ? AND round <= ?" if epoch is not None else ""
        values = () if epoch is None else (epoch, after, upto)
        for *key, name, value in self._ask(
            f"SELECT epoch, round, name, value FROM round_costs{some}", *values
        ):
            found.setdefault(_key(key), {})[name] = value
        return found

    def time_line(self, after: int, upto: int) -> dict[str, float]:
        """Return the server's seconds by name, of rows of rounds behind one and up to another."""
        return dict(
            self._ask(
                "SELECT name, sum(value) FROM round_costs WHERE rowid > ? AND rowid <= ? "
                f"AND name IN ({', '.join('?' for _ in _LINE)}) GROUP BY name",
                after,
                upto,
                *_LINE,
            )
        )

    def last_line(self, after: int) -> int:
        """Return the number of the newest row of rounds; `after`, if none is newer."""
        return self._one("SELECT max(rowid) FROM round_costs WHERE rowid > ?", after) or after

    def round_totals(self) -> dict[str, float]:
        """Return the sums of all that is said of rounds, by name; of what does not add up the highest."""
        return {
            name: highest if catalogue.is_highest(name) else total
            for name, total, highest in self._ask(
                "SELECT name, sum(value), max(value) FROM round_costs GROUP BY name"
            )
        }

    def bundles(self) -> dict[Key, dict[Held, int]]:
        """Return the payload of every round by what it held, resends included."""
        found: dict[Key, dict[Held, int]] = {}
        for epoch, number, way, kind, codec, size in self._bundles("epoch, round"):
            found.setdefault((epoch, number), {})[way, kind, codec] = size
        return found

    def bundle_cells(self, epoch: int, number: int) -> list[BundleRow]:
        """Return the payload of every client in a round by what it held, by seat."""
        rows = list(self._bundles("seat", "epoch = ? AND round = ?", epoch, number))
        clients = self._names({seat for seat, *_ in rows})
        return [BundleRow(seat, clients[seat], *rest) for seat, *rest in rows]

    def _bundles(self, by: str, which: str = "true", *values: int) -> Iterator[Any]:
        by = f"{by}, direction, kind, codec"
        counted = f"SELECT {by}, sum(bytes) FROM bundle_bytes WHERE {which}"
        return self._ask(f"{counted} GROUP BY {by} HAVING sum(bytes) > 0", *values)


def _key(values: Iterable[Any]) -> Any:
    """Return one value as it is, several as a tuple."""
    found = tuple(values)
    return found[0] if len(found) == 1 else found


def _numbers(row: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    found = {name: value for name, value in row if value is not None}
    if endless := [name for name, value in found.items() if not math.isfinite(value)]:
        raise ValueError(f"{endless[0]} in it is no number")
    return found


def _members(cohort: str, added: str | None) -> tuple[int, ...]:
    return tuple(sorted({*json.loads(cohort), *json.loads(added or "[]")}))


def _standing(rounds: list[RoundRow], epoch: int) -> list[RoundRow]:
    """Tell which rounds the run stands on in that epoch; each after the first begins with the one it goes on
    from."""
    bases: dict[int, int] = {}
    found = []
    for row in rounds:
        begins = 0 < row.epoch <= epoch and row.epoch not in bases
        if begins:
            bases[row.epoch] = row.number
        found.append(row._replace(stands=row.committed and row.number > 0 and not begins))
    return [
        row._replace(
            stands=row.stands and all(row.number <= base for of, base in bases.items() if of > row.epoch)
        )
        for row in found
    ]


def _fields(text: str) -> dict[str, Any]:
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("an event has no fields")
    return fields
