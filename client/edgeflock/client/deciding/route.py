"""The route: at which of the addresses that lead to its run a client calls, and where it turns next. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Generic, TypeVar

SHUNNED_S = 60.0  # for which an address that did not answer is left alone, as long as there are others

A = TypeVar("A")


class Route(Generic[A]):
    """Addresses that were given to the client, and those that it was told of since, which go first."""

    def __init__(self, given: Iterable[A], random: Random, told: Iterable[A] = ()) -> None:
        self._given, self._random = tuple(given), random
        self.told = tuple(told)
        self.at: A = self._given[0]
        self._failed: dict[A, float] = {}  # when

    def follow(self, told: tuple[A, ...], best: A | None, now: float) -> bool:
        """The run was reached where the client is, and told of these; return whether to go on to another."""
        self._failed.pop(self.at, None)
        self.told = told
        if best is None or best == self.at or now - self._failed.get(best, -SHUNNED_S) < SHUNNED_S:
            return False
        self.at = best
        return True

    def fail(self, now: float) -> bool:
        """Nothing was reached where the client is: turn to another address; return whether there is one."""
        self._failed[self.at] = now
        before = self.at
        ways = [way for way in (*self.told, *self._given) if way != before]
        fresh = [way for way in ways if now - self._failed.get(way, -SHUNNED_S) >= SHUNNED_S]
        if gates := [way for way in fresh if way in self.told]:
            self.at = self._random.choice(gates)  # those that a gate has lost spread over the others
        elif fresh:
            self.at = fresh[0]
        elif ways:
            self.at = min(ways, key=lambda way: self._failed.get(way, 0.0))
        return self.at != before
