"""The seats of a machine: whose state directory a client takes that was told neither a name nor a directory.

`default`, `default-2`, `default-3` ... below the state home, each a state directory like any other.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import structlog

from edgeflock.client.keeping.statedir import IDENTITY, StateDir, Unwritable, replace_file
from edgeflock.common.errors import CorruptState, Locked
from edgeflock.common.wire.address import Address

log = structlog.get_logger(__name__)

_SEAT = re.compile(r"default(?:-([2-9]|[1-9]\d{1,5}))?")
_MACHINE = re.compile(r"[0-9a-f]{8}")
_LAST = "server"  # file of a seat: where its client was last


def take(home: Path, server: Address) -> StateDir:
    """Return the first free seat, locked; those that were last at this server go before all others.

    So clients of two runs that are started again find their own seats. One that cannot be used is passed
    over with a line in the log. Raises Unwritable.
    """
    where = f"port {server.port} here" if server.local and not server.path else server.target
    with _one_at_a_time(home):
        machine = _machine(home)
        for number in _in_order(home, where):
            if (state := _opened(home / _name(number), f"client-{machine}-{number}")) is not None:
                replace_file(state.path / _LAST, where.encode())
                return state
    raise AssertionError("unreachable: there is always a next number")


def _name(number: int) -> str:
    return "default" if number == 1 else f"default-{number}"


def _in_order(home: Path, where: str) -> Iterator[int]:
    found = (_SEAT.fullmatch(path.name) for path in home.iterdir())
    there = sorted(int(seat[1] or 1) for seat in found if seat)
    first = [number for number in there if _last(home / _name(number)) == where]
    yield from first
    yield from (number for number in count(1) if number not in first)


def _last(seat: Path) -> str:
    try:
        return (seat / _LAST).read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _opened(seat: Path, client_id: str) -> StateDir | None:
    """Return a seat that nobody has; raises Unwritable if one cannot be made."""
    made = os.path.exists(seat / IDENTITY)
    try:
        return StateDir.open(seat, client_id)
    except Locked:
        return None
    except (CorruptState, Unwritable) as error:
        if not made:
            raise
        log.warning("seat_passed_over", reason=str(error))
        return None


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Let nobody else choose meanwhile: whoever looks at a seat has it locked for an instant."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(home / "seats.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unwritable(home, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise Unwritable(home, error) from None
    finally:
        os.close(lock)


def _machine(home: Path) -> str:
    """Return what tells this machine's clients from those of others; made once."""
    file = home / "machine"
    text = file.read_text("utf-8", "replace").strip() if file.exists() else ""
    if not _MACHINE.fullmatch(text):
        text = secrets.token_hex(4)
        replace_file(file, f"{text}\n".encode(), lasting=True)
    return text
