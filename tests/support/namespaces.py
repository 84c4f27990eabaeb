"""Two network namespaces joined by a cable of their own, whose interface counts every byte."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from edgeflock.common.wire.framing import PACKET_HEADER, SEGMENT

SERVER_IP, CLIENT_IP = "192.0.2.1", "192.0.2.2"  # of the documentation's network; nobody else sees them
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Beside:
    """Bytes of packets that carry nothing new."""

    bare_acks: int
    sent_again: int


@dataclass(frozen=True)
class Cable:
    """Names of the namespaces at its ends."""

    server: str
    client: str

    def counted(self) -> dict[str, int]:
        """Return the bytes that went down to the client and up to the server."""
        found = _ip("-n", self.server, "-s", "-j", "link", "show", "dev", "cable")
        counters = json.loads(found)[0]["stats64"]
        return {"down": counters["tx"]["bytes"], "up": counters["rx"]["bytes"]}

    def beside(self) -> dict[str, Beside]:
        """Return what each end's TCP has sent beside every byte once."""
        return {"down": _beside(self.server), "up": _beside(self.client)}

    def part(self, *ways: str) -> None:
        """Drop every packet that comes to (`down`) or leaves (`up`) the client; nobody is told."""
        if shutil.which("iptables") is None:
            pytest.skip("iptables is not installed")
        for way in ways:
            self._filter("-I", way)

    def heal(self, *ways: str) -> None:
        for way in ways:
            self._filter("-D", way)

    def lose(self, percent: float, *ways: str) -> None:
        """Drop so many of a hundred packets, at random."""
        if shutil.which("iptables") is None:
            pytest.skip("iptables is not installed")
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{percent / 100}")
        for way in ways:
            self._filter("-I", way, *chance)

    def slow(self, rate: str) -> None:
        """Let no more than that rate (of `tc`, as 256kbit) pass each way, behind a queue that drops."""
        if shutil.which("tc") is None:
            pytest.skip("tc is not installed")
        bucket = ("tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
        for name in (self.server, self.client):
            _ip("netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", *bucket)

    def _filter(self, change: str, way: str, *match: str) -> None:
        chain = {"down": "INPUT", "up": "OUTPUT"}[way]
        _ip("netns", "exec", self.client, "iptables", change, chain, *match, "-j", "DROP")

    def at_server(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.server)

    def at_client(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.client)


@contextlib.contextmanager
def cable(*, packets: bool) -> Iterator[Cable]:
    """Lay a cable between two new namespaces; skip the test where that cannot be done.

    Its packets are those of an Ethernet, or else of up to 64 KiB, as the kernel hands them to a card.
    """
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed")
    number = f"{os.getpid()}-{next(_NUMBERS)}"
    made = Cable(f"edgeflock-s{number}", f"edgeflock-c{number}")
    try:
        _lay(made, packets)
        yield made
    finally:
        for name in (made.server, made.client):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _lay(made: Cable, packets: bool) -> None:
    try:
        for name in (made.server, made.client):
            _ip("netns", "add", name)
        ends = ("name", "cable", "netns")
        _ip("link", "add", *ends, made.server, "type", "veth", "peer", *ends, made.client)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no namespaces can be made here: {error.stderr.decode().strip()}")
    for name, address in ((made.server, SERVER_IP), (made.client, CLIENT_IP)):
        _ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
        if packets:
            _ip("-n", name, "link", "set", "cable", "gso_max_segs", "1")
        for device in ("lo", "cable"):
            _ip("-n", name, "link", "set", device, "up")


def _beside(namespace: str) -> Beside:
    """Read what TCP has counted in that namespace."""
    counters: dict[str, int] = {}
    for table in ("snmp", "netstat"):
        lines = _ip("netns", "exec", namespace, "cat", f"/proc/net/{table}").decode().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            counters |= dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    bare = counters["OutSegs"] - counters["TCPOrigDataSent"]  # neither has what was sent again
    return Beside(bare * PACKET_HEADER, counters["RetransSegs"] * (PACKET_HEADER + SEGMENT))


def _ip(*words: str) -> bytes:
    return subprocess.run(["ip", *words], capture_output=True, check=True).stdout
