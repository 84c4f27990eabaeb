"""The secret by which gates are known: one line of a file."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.errors import UsageError


def read_key(path: Path, flag: str) -> str:
    """Return the secret; raises UsageError with a sentence."""
    try:
        key = path.read_text("utf-8").strip()
    except OSError as error:
        raise UsageError(f"{flag} {str(path)!r} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{flag} {str(path)!r} is not text") from None
    if not key:
        raise UsageError(f"{flag} {str(path)!r} is empty")
    return key
