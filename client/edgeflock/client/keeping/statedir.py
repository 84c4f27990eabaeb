"""The state directory: its lock, the client's stable id and instance, and one folder per hosted client."""

from __future__ import annotations

import fcntl
import os
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path

from edgeflock.common.client_id import checked_id
from edgeflock.common.errors import BadValue, CorruptState, EdgeflockError, Locked

INSTANCE_BYTES = 16
IDENTITY = "identity.toml"


class Unwritable(EdgeflockError):
    """The state directory cannot be written: read-only, full, or not a directory."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"state directory {path} cannot be written: {error.strerror or error}")


@dataclass(frozen=True)
class DeviceIdentity:
    """Who this state directory is: its own client id, and 16 bytes that no other directory has."""

    client_id: str
    instance: bytes


class StateDir:
    """An open state directory; no other process has it until `close`."""

    def __init__(self, path: Path, identity: DeviceIdentity, lock: int) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock

    @classmethod
    def open(cls, path: Path, client_id: str | None = None) -> StateDir:
        """Lock the directory, made if it is missing, and read or make its identity.

        Raises Locked, CorruptState or Unwritable.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unwritable(path, error) from None
        try:
            _take(lock, path)
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


def replace_file(path: Path, content: bytes, *, lasting: bool = False) -> None:
    """Write a small file so that a reader finds the old content or the new, never a part.

    If it is to be `lasting`, that holds after a power cut, too.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"state directory {path} is in use by another process") from None


def _identity(path: Path, client_id: str | None) -> DeviceIdentity:
    file = path / IDENTITY
    if not file.exists():
        made = DeviceIdentity(
            client_id or f"client-{secrets.token_hex(4)}", secrets.token_bytes(INSTANCE_BYTES)
        )
        checked_id(made.client_id)
        text = f'id = "{made.client_id}"\ninstance = "{made.instance.hex()}"\n'
        replace_file(file, text.encode(), lasting=True)
    return _read(file)


def _read(file: Path) -> DeviceIdentity:
    try:
        fields = tomllib.loads(file.read_bytes().decode())
        identity = DeviceIdentity(checked_id(str(fields["id"])), bytes.fromhex(fields["instance"]))
    except (ValueError, KeyError, TypeError, BadValue) as error:
        raise CorruptState(f"{file} cannot be read ({error}): delete it to get a new identity") from None
    if len(identity.instance) != INSTANCE_BYTES:
        raise CorruptState(
            f"{file} holds an instance of {len(identity.instance)} bytes, not {INSTANCE_BYTES}"
        )
    return identity
