"""What `--on` says: the engine, and where it is."""

from __future__ import annotations

from edgeflock.common.errors import BadValue

_RAY = "ray"


def read_on(text: str) -> str:
    """Return the address that `--on ray[=HOST:PORT]` names, empty if it names none. Raises BadValue."""
    name, equals, address = text.partition("=")
    if name != _RAY or (equals and not address):
        raise BadValue("--on", text, "ray, or ray=HOST:PORT")
    return address
