"""What installed packages bring, at the end of each list: name, what it says of itself, and whose it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.plugins.loading import installed


def lines(kind: str, told: Callable[[str], str], width: int = 14) -> Iterator[str]:
    """Yield a line for each plug-in of a kind; one that cannot be loaded says why, and hides no other."""
    for name in installed(kind):
        yield f"{name:<{width}} {_words(name, told)} (plug-in, {origins(kind, name)})"


def _words(name: str, told: Callable[[str], str]) -> str:
    try:
        return told(name)
    except EdgeflockError as error:
        return f"cannot be used: {error}"


def origins(kind: str, name: str) -> str:
    """Return whose a plug-in is: package and version."""
    return ", ".join(plugin.origin for plugin in installed(kind)[name])
