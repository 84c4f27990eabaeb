"""Starts fl-client as one of several containers: takes the first free seat of their shared state volume.

A container has no name that outlives it, so the id lies in the volume: replicas that are made anew join an
interrupted run as `client-1`, `client-2`, ... again, each with the state of that id.

    replica.py STATE_ROOT [FLAGS OF fl-client]
"""

from __future__ import annotations

import fcntl
import itertools
import os
import sys


def take_seat(root: str) -> str:
    """Lock the first seat that no living replica holds; return its name. The lock ends with the process."""
    for number in itertools.count(1):
        name = f"client-{number}"
        seat = os.open(os.path.join(root, f"{name}.seat"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(seat, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(seat)
            continue
        os.set_inheritable(seat, True)  # fl-client holds it on, having replaced this program
        return name
    raise AssertionError("unreachable: there is always a next number")


def main(root: str, *flags: str) -> None:
    name = take_seat(root)
    command = ["fl-client", "--id", name, "--state-dir", os.path.join(root, name), *flags]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
