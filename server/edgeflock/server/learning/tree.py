"""The order of a sum: a tree over seats, so that its bits depend on the seats and not on who has summed what.

A node of the lowest level is 64 seats (`seat // 64`), one of the next level 64 such nodes, and so on. The sum
of a lowest node is that of its seats in ascending order; the sum of any other is that of its children that
hold anybody, in ascending order, beginning with the first as it is. So a node with one such child has its
bits, and a roster of up to 64 seats is summed in sequence. At any time one sum of each level is being made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edgeflock.server.learning.partial import Partial

RADIX = 64


class Tree:
    """The sum over ascending seats, as far as it has come."""

    def __init__(self, make: Callable[[], Partial]) -> None:
        self._make = make
        self._levels = [make()]  # of each level the node at hand, which may be empty; the lowest first
        self.closed = False  # by `root`: nothing can be added any more

    def reset(self) -> None:
        for partial in self._levels:
            partial.reset()
        self.closed = False

    def leaf(self, seat: int) -> Partial:
        """Return the sum to which that seat is to be added; what comes later is above it."""
        self._leave(seat)
        return self._levels[0]

    def take(self, part: Partial) -> None:
        """Add the sum of a whole node, or of those that count of it, in its place; it is the tree's then."""
        if not part.seats:
            return
        self._leave(part.seats[0])
        level = _common(part.seats[0], part.seats[-1])
        while len(self._levels) <= level:
            self._levels.append(self._make())
        if any(partial.seats for partial in self._levels[: level + 1]):
            raise ValueError(f"seats {part.seats[0]} to {part.seats[-1]} are no whole node of the sum")
        self._levels[level] = part

    def root(self) -> Partial:
        """Return the sum of all seats, to which nothing can be added."""
        self.closed = True
        top = max((level for level, partial in enumerate(self._levels) if partial.seats), default=0)
        for level in range(top):
            self._carry(level)
        return self._levels[top]

    def _leave(self, seat: int) -> None:
        """Complete the nodes of which that seat is not: theirs goes up."""
        last = max((partial.seats[-1] for partial in self._levels if partial.seats), default=-1)
        if self.closed or seat <= last:
            raise ValueError(f"seat {seat} comes after {last}, or after the end")
        if last >= 0:
            for level in range(_common(last, seat)):
                self._carry(level)

    def _carry(self, level: int) -> None:
        """Add the node at hand to the one that it is part of. The first is taken as it is."""
        if not self._levels[level].seats:
            return
        if level + 1 == len(self._levels):
            self._levels.append(self._make())
        lower, upper = self._levels[level : level + 2]
        if upper.seats:
            upper.merge(lower)
            lower.reset()
        else:
            self._levels[level : level + 2] = upper, lower


def joined(parts: Iterable[Partial], make: Callable[[], Partial]) -> Partial:
    """Return the sum of whole nodes, in whatever order they come."""
    tree = Tree(make)
    for part in sorted((part for part in parts if part.seats), key=lambda part: part.seats[0]):
        tree.take(part)
    return tree.root()


def _common(low: int, high: int) -> int:
    """Return the level of the lowest node that holds both seats; 0 is the level of 64 seats."""
    level = 0
    while low // RADIX ** (level + 1) != high // RADIX ** (level + 1):
        level += 1
    return level
