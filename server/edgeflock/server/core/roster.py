"""Who takes part: seats in natural order, who is here, and who is chosen for a round."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from edgeflock.common.command.crowd import everybody
from edgeflock.common.seeds import numpy_generator
from edgeflock.server.core.conduct import ConductBook
from edgeflock.server.core.decisions import Dropped, Placed, RoundOpened, Samples, Seated
from edgeflock.server.core.rules import Rules

RETURN_S = 0.002  # for each of many clients that come back to a server that was started
_PARTS = re.compile(r"(\d+)")


class Roster:
    """The clients of a run as the machine knows them."""

    def __init__(self, rules: Rules, conduct: ConductBook) -> None:
        self._rules, self._conduct = rules, conduct
        # Invariant: names without vacant seats and seat_of are each other's inverse; the journal holds them.
        self.names: dict[int, str] = {}  # client id by seat
        self.seat_of: dict[str, int] = {}
        self.coming: dict[str, int] = {}  # ids whose seats are on the way to the journal; none is in seat_of
        self.online: set[str] = set()  # with or without a seat
        # Invariant: left are the seats of those who are not online.
        self.left: dict[int, float] = {}  # since when
        self.now = 0.0  # as the last event said
        self._missed: set[int] = set()  # of those who left: a round has gone on without them
        # Invariant: who is ready has as many samples in the journal as it has said last.
        self.ready: set[int] = set()
        self.samples: dict[int, int] = {}  # n_i by seat, as the journal has it
        self._stated: dict[int, int] = {}  # the same as the clients have said it last
        self._lowest, self._seated = 0, 0  # no seat is free below the first, as long as so many are taken
        self.vacant: dict[int, Dropped] = {}  # seats whose clients were dropped; names still has these
        self.changing: dict[int, Dropped | Placed] = {}  # by seat: changes on their way to the journal
        self.dismissed: dict[str, Dropped] = {}  # who was dropped or replaced, and is not back
        self._fresh: set[int] = set()  # of a fixed roster: seats whose clients were never ready

    @property
    def seats(self) -> int:
        """How many there are."""
        return max(self._rules.clients, len(self.names))

    def has_room_for(self, client_id: str) -> bool:
        """Whether the id has a seat or can still get one by itself."""
        if client_id in self.dismissed:
            return False
        known = client_id in self.seat_of or client_id in self.coming
        return known or len(self.names) + len(self.coming) < self.seats

    def seat_had(self, client_id: str) -> int | None:
        """Return the seat that a client has, or had as the last one."""
        if (seat := self.seat_of.get(client_id)) is not None:
            return seat
        one = self.dismissed.get(client_id)
        return one.seat if one is not None and one.seat in self.vacant else None

    def told(self) -> str:
        """Return who has a seat, for people."""
        return everybody(natural_order(self.seat_of)) or "none"

    # -------------------------------------------------------------------------------- presence

    def come(self, client_id: str) -> None:
        """It is here, with or without a seat."""
        self.online.add(client_id)
        if (seat := self.seat_of.get(client_id)) is not None:
            self.left.pop(seat, None)
            self._missed.discard(seat)

    def go(self, client_id: str) -> None:
        """It is here no more; what it had to do, it may still come back for."""
        self.online.discard(client_id)
        if (seat := self.seat_of.get(client_id)) is not None:
            self.left.setdefault(seat, self.now)

    def grace_ends(self, seat: int) -> float:
        """Return until when a client that left is waited for."""
        return self.left[seat] + self._rules.grace_s

    def away(self) -> set[int]:
        """Return who has left for longer than the grace: nobody waits for them."""
        return {seat for seat in self.left if self.grace_ends(seat) <= self.now}

    def miss(self, seats: Iterable[int]) -> list[str]:
        """A round goes on without these; return who of them is told of, which is once for each absence."""
        new = [seat for seat in seats if seat in self.left and seat not in self._missed]
        self._missed.update(new)
        return [self.names[seat] for seat in new]

    # -------------------------------------------------------------------------------- seating

    def offer(self, client_id: str) -> Seated | None:
        """Return the seats to be given now that this client is online, if there are any."""
        if client_id in self.seat_of or client_id in self.coming:
            return None
        if self._rules.online:
            return self._offer_one(client_id)
        if self.names or self.coming or len(self.online) < self._rules.clients:
            return None
        seats = tuple(enumerate(natural_order(self.online)))
        self.coming = {name: seat for seat, name in seats}
        return Seated(seats)

    def _offer_one(self, client_id: str) -> Seated | None:
        if client_id in self.dismissed or (seat := self.free()) is None:
            return None
        self.coming[client_id] = seat
        return Seated(((seat, client_id),))

    def free(self) -> int | None:
        """Return the lowest seat that nobody has had."""
        self._notice_losses()
        due = set(self.coming.values())
        while self._lowest in self.names or self._lowest in due:  # with gaps, if one was lost in a crash
            self._lowest += 1
        return self._lowest if self._lowest < self._rules.clients else None

    def _notice_losses(self) -> None:
        """Who has lost a seat leaves it to the next."""
        if len(self.names) < self._seated:
            self._lowest = 0
        self._seated = len(self.names)

    def take(self, seats: tuple[tuple[int, str], ...]) -> None:
        """The seats are in the journal."""
        self._notice_losses()
        for seat, client_id in seats:
            self.names[seat] = client_id
            self.seat_of[client_id] = seat
            self.coming.pop(client_id, None)
            if client_id not in self.online:
                self.left[seat] = self.now + RETURN_S * len(seats)
        self._seated = len(self.names)

    # -------------------------------------------------------------------------------- an operator's changes

    def recall(self, dismissed: Iterable[Dropped]) -> None:
        """The journal holds this of the lives before."""
        self._fresh = set() if self._rules.online else self.names.keys() - self.samples.keys()
        for one in dismissed:
            self.dismissed[one.client_id] = one
            if self.names[one.seat] == one.client_id:
                self._empty(one)
        self._conduct.seats = self.seats - len(self.vacant)

    def begin(self, change: Dropped | Placed) -> None:
        """A change is decided, and on its way to the journal."""
        self.changing[change.seat] = change
        if isinstance(change, Placed):
            self.coming[change.client_id] = change.seat

    def complete_change(self, change: Dropped | Placed) -> None:
        """The journal holds a change."""
        self.changing.pop(change.seat, None)
        if isinstance(change, Dropped):
            self.dismissed[change.client_id] = change
            self._empty(change)
        else:
            self._place(change)
        self._conduct.seats = self.seats - len(self.vacant)

    def _empty(self, dropped: Dropped) -> None:
        self.vacant[dropped.seat] = dropped
        self.seat_of.pop(dropped.client_id, None)
        self._forget(dropped.seat)

    def _place(self, change: Placed) -> None:
        seat, client_id = change.seat, change.client_id
        if change.before not in ("", client_id):
            self.dismissed[change.before] = Dropped(seat, change.before, change.round)
            self.seat_of.pop(change.before, None)
        self.dismissed.pop(client_id, None)
        self.vacant.pop(seat, None)
        self._forget(seat)
        self._fresh |= set() if self._rules.online else {seat}
        self.take(((seat, client_id),))

    def _forget(self, seat: int) -> None:
        """Whoever has it now has not said what it holds."""
        self.ready.discard(seat)
        self.samples.pop(seat, None)
        self._stated.pop(seat, None)
        self.left.pop(seat, None)
        self._missed.discard(seat)

    def without_client(self) -> dict[int, Dropped]:
        """Return the seats that nobody has, or is about to have no more, with how that came."""
        going = {seat: one for seat, one in self.changing.items() if isinstance(one, Dropped)}
        return {**self.vacant, **going}

    def able(self, round: int) -> set[int]:
        """Return the seats of those who may take part in that round, when they are here and ready."""
        return set(self.seat_of.values()) - self.without_client().keys() - self._conduct.held(round)

    # -------------------------------------------------------------------------------- data

    def state(self, seat: int, samples: int) -> Samples | None:
        """A member has its data: return what is to be written of them before it is ready, if anything is."""
        self._stated[seat] = samples
        if self.samples.get(seat) == samples:
            self.ready.add(seat)
            return None
        self.ready.discard(seat)
        return Samples(seat, samples)

    def note(self, written: Samples) -> Samples | None:
        """The journal holds this; return what is to be written after it, if it was overtaken meanwhile."""
        if written.seat not in self._stated:  # its client was dropped since
            return None
        self.samples[written.seat] = written.samples
        self._fresh.discard(written.seat)
        return self.state(written.seat, self._stated[written.seat])

    def script_fault(self) -> str:
        """Return why the script's cohorts cannot be chosen, empty if they can."""
        script = self._rules.script
        unknown = next((name for ids in script for name in ids if name not in self.seat_of), "")
        seated = everybody(list(self.seat_of))
        return f"--cohort-script names {unknown!r}, who has no seat; seated are {seated}" if unknown else ""

    # -------------------------------------------------------------------------------- cohorts

    def complete(self, committed: int) -> bool:
        """Whether those are here who are needed to open the round after that one."""
        if self._rules.online:
            able = self.seats - len(self.vacant) - len(self._conduct.held(committed + 1))
            wanted = min(self._rules.least or self._rules.cohort, able)
            return len(self.ready) >= wanted and len(self._candidates(committed + 1)) >= wanted
        if not self.names or (not committed and len(self.ready) < len(self.seat_of)):
            return False
        if not self._rules.least and not self._fresh:
            return True
        candidates = self._candidates(committed + 1)
        here = candidates - self.away() if self._rules.least else candidates
        needed = max(self._rules.least, self._rules.min_updates)
        return len(here) >= min(needed, len(self.able(committed + 1)))

    def choose(self, round: int) -> RoundOpened:
        """Return the round with its cohort."""
        if self._rules.script:
            ids = self._rules.script[round - 1]
            return RoundOpened(round, tuple(sorted(self.seat_of[name] for name in ids)))
        size = self.seats if self._rules.everybody else self._rules.cohort + self._rules.over_select
        return RoundOpened(round, self._draw(round, self._candidates(round), size))

    def everybody(self, round: int, reason: str) -> RoundOpened:
        """Return the last round: all who have a seat, here or not."""
        return RoundOpened(
            round, tuple(sorted(self.names.keys() - self.without_client().keys() - self._fresh)), reason
        )

    def spare(self, round: int, cohort: tuple[int, ...], wanted: int) -> tuple[int, ...]:
        """Return who can extend a short round."""
        wanted = 0 if self._rules.script else wanted
        return self._draw(-round, self._candidates(round) - set(cohort), wanted)

    def _draw(self, round: int, able: set[int], size: int) -> tuple[int, ...]:
        """Return so many, ascending: who is away only where the others are not enough for a whole cohort."""
        seed, here = self._rules.seed, able - self.away()
        if len(here) >= size or len(here) == len(able) or self._rules.least:
            return select(seed, round, here, size)
        return tuple(sorted({*here, *select(seed, round, able - here, size - len(here))}))

    def _candidates(self, round: int) -> set[int]:
        able = self.able(round) - self._fresh
        if not self._rules.online:
            return able
        return {seat for seat in able if self.names[seat] in self.online} & self.ready

    def shortage(self) -> str:
        """Return who did not come in time, for people."""
        here = len(self.ready) if self.names else len(self.online)
        missing = [name for name, seat in self.seat_of.items() if seat not in self.ready]
        names = f"; not ready: {everybody(missing)}" if missing else ""
        return f"{here} of {self._rules.clients} clients came within {self._rules.gather_s:g} s{names}"


# ------------------------------------------------------------------------------ order and selection


def natural_order(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids sorted with numbers by value: c2 before c10."""
    return tuple(sorted(ids, key=_natural_key))


def _natural_key(client_id: str) -> tuple[tuple[int, int, str], ...]:
    parts = [part for part in _PARTS.split(client_id) if part]
    key = tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in parts)
    return (*key, (2, 0, client_id))


def select(seed: int, round: int, candidates: Collection[int], size: int) -> tuple[int, ...]:
    """Return `size` of the candidates (all if there are fewer), ascending; a function of its arguments."""
    ordered = sorted(candidates)
    if size >= len(ordered):
        return tuple(ordered)
    chosen = numpy_generator(seed, "cohort", round).choice(len(ordered), size=size, replace=False)
    return tuple(sorted(ordered[place] for place in chosen))
