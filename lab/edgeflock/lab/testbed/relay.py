"""The process that carries packets between the namespaces of a testbed, as the medium has it.

usage: python -m edgeflock.lab.testbed.relay TERMS.json
Every namespace gets a tunnel whose packets come here; FIGURES.json says five times a second what has passed.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgeflock.lab.testbed.medium import SERVER, Ether, LinkTerms, Packet

INTERFACE = "fl0"  # in every namespace
_NEW_NETWORK = 0x40000000
_MAKE_TUNNEL, _TUNNEL, _PLAIN = 0x400454CA, 0x0001, 0x1000  # TUNSETIFF, IFF_TUN, IFF_NO_PI
_LARGEST = 65_536
_AT_A_TIME = 64  # packets of one namespace, before the others have their turn
_TELL_S = 0.2
_LONGEST_S = 0.1
_VERSION_4, _DESTINATION = 4, slice(16, 20)


@dataclass
class Lateness:
    """How far behind the clock packets leave: more than some ms, and this machine is too slow for it."""

    packets: int = 0
    sum_s: float = 0.0
    most_s: float = 0.0

    def note(self, late_s: float) -> None:
        self.packets += 1
        self.sum_s += late_s
        self.most_s = max(self.most_s, late_s)


@dataclass
class Ends:
    """The tunnels by place, and places by tunnel and address."""

    tunnels: dict[int, int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    addresses: dict[bytes, int] = field(default_factory=dict)

    def add(self, place: int, namespace: str, address: str) -> None:
        tunnel = _tunnel_in(namespace)
        self.tunnels[place], self.places[tunnel] = tunnel, place
        self.addresses[socket.inet_aton(address)] = place

    def read(self, tunnel: int) -> list[Packet]:
        """Return some of the packets that one end has sent."""
        found, sender = [], self.places[tunnel]
        with suppress(BlockingIOError):
            for _ in range(_AT_A_TIME):
                data = os.read(tunnel, _LARGEST)
                receiver = self.addresses.get(data[_DESTINATION])
                if receiver is not None and data[0] >> 4 == _VERSION_4:
                    found.append(Packet(sender, receiver, data))
        return found

    def write(self, packet: Packet) -> None:
        with suppress(OSError):  # its queue is full, or it is gone
            os.write(self.tunnels[packet.receiver], packet.data)


def _tunnel_in(namespace: str) -> int:
    """Make the tunnel of a namespace; this process comes back to its own."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _enter(there)
        tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tunnel, _MAKE_TUNNEL, struct.pack("16sH22x", INTERFACE.encode(), _TUNNEL | _PLAIN))
        return tunnel
    finally:
        _enter(home)
        os.close(home)
        os.close(there)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "setns")


class Relay:
    """The loop: packets in, packets out when they are due, figures now and then."""

    def __init__(self, ether: Ether, ends: Ends, figures: Path) -> None:
        self._ether, self._ends, self._figures = ether, ends, figures
        self._late, self._tell_at, self._asked = Lateness(), 0.0, False

    def stop(self, *_: object) -> None:
        self._asked = True

    def run(self) -> None:
        poll = select.epoll()
        for tunnel in self._ends.places:
            poll.register(tunnel, select.EPOLLIN)
        while not self._asked:
            now = time.monotonic()
            for at, packet in self._ether.due(now):
                self._ends.write(packet)
                self._late.note(now - at)
            if now >= self._tell_at:
                self._tell(now)
            for tunnel, _ in poll.poll(self._patience()):
                for packet in self._ends.read(tunnel):
                    self._ether.send(packet, time.monotonic())

    def _patience(self) -> float:
        next_at = self._ether.next_at
        return _LONGEST_S if next_at is None else min(_LONGEST_S, max(0.0, next_at - time.monotonic()))

    def _tell(self, now: float) -> None:
        self._tell_at = now + _TELL_S
        told = {**asdict(self._ether.tally), "late": asdict(self._late), "cpu_s": time.process_time()}
        temporary = self._figures.with_suffix(".new")
        temporary.write_text(json.dumps(told), "utf-8")
        temporary.rename(self._figures)


def carry(terms: Mapping[str, Any]) -> None:
    """Carry packets until somebody asks for an end."""
    ends = Ends()
    for place, (namespace, address) in enumerate(terms["ends"], SERVER):
        ends.add(place, namespace, address)
    air, cable = LinkTerms(**terms["air"]), LinkTerms(**terms["cable"])
    relay = Relay(Ether(air, cable, shared=terms["shared"]), ends, Path(terms["figures"]))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, relay.stop)
    with suppress(OSError):
        os.nice(-10)  # it is the air: it waits for nobody
    relay.run()


def main(arguments: Sequence[str]) -> None:
    carry(json.loads(Path(arguments[0]).read_text("utf-8")))


if __name__ == "__main__":
    main(sys.argv[1:])
