"""The state directory: its lock, the client's stable id and instance, one folder per hosted client.

Who was told neither a name nor a directory takes a seat of its machine: `default`, `default-2` ... below the
state home, each a state directory like any other.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import structlog

from edgeflock.client.keeping.files import make_folder, replace_file
from edgeflock.client.keeping.machine import machine_digest
from edgeflock.common.client_id import checked_id
from edgeflock.common.errors import BadValue, CorruptState, EdgeflockError, Locked
from edgeflock.common.wire.address import Address, parse_address

log = structlog.get_logger(__name__)

INSTANCE_BYTES = 16
IDENTITY = "identity.toml"
GATES = "gates"  # file of a hosted client
_SEAT = re.compile(r"default(?:-([2-9]|[1-9]\d{1,5}))?")
_MACHINE = re.compile(r"[0-9a-f]{8}")
_LAST = "server"  # file of a seat: where its client was last


class Unwritable(EdgeflockError):
    """The state directory cannot be written: read-only, full, or not a directory."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"state directory {path} cannot be written: {error.strerror or error}")


@dataclass(frozen=True)
class DeviceIdentity:
    """Who this state directory is: its own client id, and 16 bytes that no other directory has."""

    client_id: str
    instance: bytes
    machine: str = ""  # digest of the machine that it was made on; empty: that is not known


class StateDir:
    """An open state directory; no other process has it until `close`."""

    def __init__(self, path: Path, identity: DeviceIdentity, lock: int) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock

    @classmethod
    def open(cls, path: Path, client_id: str | None = None) -> StateDir:
        """Lock the directory, made if it is missing, and read or make its identity.

        One that cannot be read is made anew if the client is named.
        Raises Locked, CorruptState or Unwritable.
        """
        try:
            make_folder(path)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unwritable(path, error) from None
        try:
            _lock(lock, path)
            return cls(path, _identity(path, client_id), lock)
        except OSError as error:
            os.close(lock)
            raise Unwritable(path, error) from None
        except EdgeflockError:
            os.close(lock)
            raise

    def folder(self, client_id: str) -> Path:
        """Return the folder of one hosted client, made if it is missing."""
        folder = self.path / "clients" / checked_id(client_id)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unwritable(self.path, error) from None
        return folder

    def close(self) -> None:
        os.close(self._lock)


def read_gates(folder: Path) -> tuple[Address, ...]:
    """Return where else a hosted client's last run was reached, as its server told."""
    try:
        return tuple(parse_address(line, GATES) for line in (folder / GATES).read_text("utf-8").split())
    except (OSError, ValueError, BadValue):
        return ()


def write_gates(folder: Path, gates: tuple[Address, ...]) -> None:
    replace_file(folder / GATES, "".join(f"{gate.target}\n" for gate in gates).encode(), lasting=False)


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"state directory {path} is in use by another process") from None


def _identity(path: Path, client_id: str | None) -> DeviceIdentity:
    file, here = path / IDENTITY, machine_digest()
    if not file.exists():
        return _made(file, client_id or f"client-{secrets.token_hex(4)}", here)
    try:
        found = _read(file)
    except CorruptState as error:  # as an older version, or a disk that lies, leaves it after a power cut
        if client_id is None:
            raise
        log.warning("identity_renewed", reason=str(error))
        return _made(file, client_id, here)
    return found if not here or found.machine == here else _here(file, found, here)


def _here(file: Path, found: DeviceIdentity, here: str) -> DeviceIdentity:
    """Note where the directory is now; on another machine than before it may be one of two copies."""
    if not found.machine:  # a version before did not note it
        return _written(file, replace(found, machine=here))
    log.warning("image_copied", state_dir=str(file.parent), client=found.client_id)
    return _made(file, found.client_id, here)


def _made(file: Path, client_id: str, here: str) -> DeviceIdentity:
    return _written(file, DeviceIdentity(checked_id(client_id), secrets.token_bytes(INSTANCE_BYTES), here))


def _written(file: Path, identity: DeviceIdentity) -> DeviceIdentity:
    text = f'id = "{identity.client_id}"\ninstance = "{identity.instance.hex()}"\n'
    machine = f'machine = "{identity.machine}"\n' if identity.machine else ""
    replace_file(file, (text + machine).encode())
    return identity


def _read(file: Path) -> DeviceIdentity:
    try:
        fields = tomllib.loads(file.read_bytes().decode())
        instance, machine = bytes.fromhex(fields["instance"]), str(fields.get("machine", ""))
        identity = DeviceIdentity(checked_id(str(fields["id"])), instance, machine)
    except (ValueError, KeyError, TypeError, BadValue) as error:
        raise CorruptState(
            f"{file} cannot be read ({error}): give --id the name of this client, or delete the file "
            "to get a new identity"
        ) from None
    if len(identity.instance) != INSTANCE_BYTES:
        raise CorruptState(
            f"{file} holds an instance of {len(identity.instance)} bytes, not {INSTANCE_BYTES}"
        )
    return identity


# ------------------------------------------------------------------------------------------------ seats


def take_seat(home: Path, server: Address) -> StateDir:
    """Return the first free seat, locked; those that were last at this server go before all others.

    So clients of two runs that are started again find their own seats. One that cannot be used is passed
    over with a line in the log. Raises Unwritable.
    """
    where = f"port {server.port} here" if server.local and not server.path else server.target
    with _one_at_a_time(home):
        machine = _machine(home)
        for number in _in_order(home, where):
            if (state := _opened(home / _name(number), f"client-{machine}-{number}")) is not None:
                if _last(state.path) != where:
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
        make_folder(home)
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
        replace_file(file, f"{text}\n".encode())
    return text
