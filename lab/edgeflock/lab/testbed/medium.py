"""The medium between devices and their server: one half-duplex air, or cables; time is handed in. Pure.

A passage carries one packet at a time and keeps a queue for each who sends; they take turns. The air is one
passage for all devices and both ways, a cable has one for each way.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

SERVER = -1  # its place; devices are 0, 1, ...
_BESIDE = 14  # bytes of an Ethernet header: a packet of the kernel's tunnel has none


@dataclass(frozen=True)
class LinkTerms:
    """What a passage does to packets."""

    rate: float  # bits a second
    delay: float = 0.0  # seconds
    jitter: float = 0.0  # seconds more, evenly; order is kept
    loss: float = 0.0  # share of the packets
    queue: int = 262_144  # bytes that may wait at each who sends, for each who receives


@dataclass(frozen=True)
class Packet:
    """One packet on its way."""

    sender: int
    receiver: int
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data) + _BESIDE

    @property
    def way(self) -> tuple[int, int]:
        return self.sender, self.receiver


@dataclass
class Tally:
    """What a passage has carried."""

    packets: int = 0
    bytes: int = 0
    busy_s: float = 0.0
    lost: int = 0  # by chance
    dropped: int = 0  # no room in a queue


Leave = Callable[[Packet, float], None]  # what happens to a packet that is through, and when


class Passage:
    """The air, or one way of a cable: one packet at a time."""

    def __init__(self, terms: LinkTerms, agenda: Agenda, random: Random, leave: Leave) -> None:
        self.tally = Tally()
        self._terms, self._agenda, self._random, self._leave = terms, agenda, random, leave
        self._queues: dict[int, deque[Packet]] = {}  # whoever waits, the next one first
        self._waiting: dict[tuple[int, int], int] = {}  # bytes, by who sends and who receives
        self._busy = False
        self._latest: dict[int, float] = {}  # when the last packet to a receiver leaves

    def enter(self, packet: Packet, now: float) -> None:
        """Take a packet, or drop it if too many bytes of its way wait."""
        waiting = self._waiting.get(packet.way, 0)
        if waiting + packet.size > self._terms.queue:
            self.tally.dropped += 1
            return
        self._waiting[packet.way] = waiting + packet.size
        self._queues.setdefault(packet.sender, deque()).append(packet)
        if not self._busy:
            self._begin(now)

    def _begin(self, now: float) -> None:
        """Carry the next packet, of whose turn it is."""
        sender, queue = next(iter(self._queues.items()))
        packet = queue.popleft()
        del self._queues[sender]
        if queue:
            self._queues[sender] = queue  # behind all others
        self._busy = True
        took = packet.size * 8 / self._terms.rate
        self.tally.busy_s += took
        self._agenda.add(now + took, lambda at: self._end(packet, at))

    def _end(self, packet: Packet, now: float) -> None:
        self._busy = False
        self._waiting[packet.way] -= packet.size
        self.tally.packets += 1
        self.tally.bytes += packet.size
        if self._terms.loss and self._random.random() < self._terms.loss:
            self.tally.lost += 1
        else:
            self._pass_on(packet, now)
        if self._queues:
            self._begin(now)

    def _pass_on(self, packet: Packet, now: float) -> None:
        arrives = now + self._terms.delay + self._terms.jitter * self._random.random()
        arrives = max(arrives, self._latest.get(packet.receiver, 0.0))
        self._latest[packet.receiver] = arrives
        self._agenda.add(arrives, lambda at: self._leave(packet, at))


@dataclass
class Agenda:
    """What happens when."""

    _heap: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, at: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (at, next(self._numbers), what))

    @property
    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def run_to(self, now: float) -> None:
        """Let everything happen that is to happen by then, each at its own time."""
        while self._heap and self._heap[0][0] <= now:
            at, _, what = heapq.heappop(self._heap)
            what(at)


class Ether:
    """All passages between the server and its devices."""

    def __init__(self, air: LinkTerms, cable: LinkTerms, *, shared: bool, seed: int = 0) -> None:
        self._agenda, self._random, self._shared = Agenda(), Random(seed), shared
        self._air, self._here = air, list[tuple[float, Packet]]()
        self._down = self._passage(cable, self._to_device)  # from the server
        self._up = self._passage(cable, self._arrive)
        self._passages: dict[tuple[int, bool], Passage] = {}  # by device and whether it sends

    def _passage(self, terms: LinkTerms, leave: Leave) -> Passage:
        return Passage(terms, self._agenda, self._random, leave)

    @property
    def tally(self) -> Tally:
        """What the devices' side has carried: the air, or all their cables together."""
        found = Tally()
        for tally in (passage.tally for passage in self._passages.values()):
            found.packets += tally.packets
            found.bytes += tally.bytes
            found.busy_s += tally.busy_s
            found.lost += tally.lost
            found.dropped += tally.dropped
        found.dropped += self._down.tally.dropped + self._up.tally.dropped
        return found

    @property
    def next_at(self) -> float | None:
        return self._agenda.next_at

    def send(self, packet: Packet, now: float) -> None:
        """Take a packet from one of its ends."""
        self._agenda.run_to(now)
        if packet.sender == SERVER:
            self._down.enter(packet, now)
        else:
            self._of(packet.sender, sends=True).enter(packet, now)

    def due(self, now: float) -> list[tuple[float, Packet]]:
        """Return the packets that have arrived by then, each with when it should have."""
        self._agenda.run_to(now)
        here, self._here = self._here, []
        return here

    def _to_device(self, packet: Packet, now: float) -> None:
        if packet.receiver == SERVER:
            self._arrive(packet, now)
        else:
            self._of(packet.receiver, sends=False).enter(packet, now)

    def _over_air(self, packet: Packet, now: float) -> None:
        """A device's packet goes on by the server's cable; one to a device is there."""
        if packet.receiver == SERVER:
            self._up.enter(packet, now)
        else:
            self._arrive(packet, now)

    def _arrive(self, packet: Packet, now: float) -> None:
        self._here.append((now, packet))

    def _of(self, device: int, *, sends: bool) -> Passage:
        key = (0, True) if self._shared else (device, sends)
        if key not in self._passages:
            self._passages[key] = self._passage(self._air, self._over_air)
        return self._passages[key]
