"""Client ids: the one rule for them, on both ends; an id is a word of the journal and a folder's name."""

from __future__ import annotations

import re

from edgeflock.common.errors import BadValue

WORDS = "1 to 64 letters, digits, dots, dashes and underscores, not only dots"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_client_id(text: str) -> bool:
    """Whether this is one."""
    return bool(_ID.fullmatch(text) and text.strip("."))


def checked_id(text: str, field: str = "id") -> str:
    """Return the id; raises BadValue, which names the field, if it is none."""
    if not is_client_id(text):
        raise BadValue(field, text, WORDS)
    return text
