"""Network namespaces by name: made, given an address and a Pi's TCP, looked through, and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.lab.testbed.relay import INTERFACE

_NAMES = Path("/run/netns")
_TUNNEL = Path("/dev/net/tun")
_NETWORK = "10.213.0.0/16"
_CONTROL = "cubic"  # TCP's of a Raspberry Pi; by the route, as a namespace may not choose its own default
_NO_IPV6 = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
_PACKET = 1500  # bytes


def require() -> None:
    """Raise UsageError with a sentence if this machine has no namespaces for us."""
    what = "fl-lab testbed lays networks of its own"
    if os.geteuid():
        raise UsageError(f"{what}: it needs root, this is user {os.geteuid()} (sudo, or [devices] external)")
    try:
        os.close(os.open(_TUNNEL, os.O_RDWR))
    except OSError as error:
        raise UsageError(f"{what}: it needs {_TUNNEL}, and that cannot be opened: {error.strerror}") from None
    if shutil.which("ip") is None:
        raise UsageError(f"{what}: it needs ip, which is not installed (package iproute2)")


def make(name: str) -> None:
    """Make a namespace with its loopback up."""
    _ip("netns", "add", name)
    subprocess.run([*inside(name), "sh", "-c", _NO_IPV6], capture_output=True, check=False)
    _ip("-n", name, "link", "set", "lo", "up")


def address(name: str, own: str) -> None:
    """Give the tunnel of a namespace its address, and TCP there the manners of a Raspberry Pi's."""
    lines = (
        f"address add {own}/32 dev {INTERFACE}",
        f"link set {INTERFACE} mtu {_PACKET} up",
        f"route add {_NETWORK} dev {INTERFACE} src {own} congctl {_CONTROL}",
    )
    _ip("-n", name, "-batch", "-", text="\n".join(lines) + "\n")


def inside(name: str) -> Sequence[str]:
    """Return what a command line begins with to run in a namespace."""
    return ("ip", "netns", "exec", name)


def names(mark: str) -> list[str]:
    """Return the namespaces with that mark."""
    return sorted(path.name for path in _NAMES.glob(f"{mark}-*"))


def processes(namespaces: Iterable[str]) -> Iterator[int]:
    """Yield the processes that live in them."""
    for name in namespaces:
        done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        yield from map(int, done.stdout.split())


def remove(namespaces: Iterable[str]) -> None:
    for name in namespaces:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str, text: str = "") -> None:
    done = subprocess.run(["ip", *words], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        why = " ".join(done.stderr.split())
        raise EdgeflockError(f"the network of the testbed cannot be laid: ip {' '.join(words)}: {why}")
