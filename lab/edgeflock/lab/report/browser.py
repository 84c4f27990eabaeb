"""A page opened in the reader's browser, where there is one; the address is always said."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")  # of X and of Wayland


def show(address: str) -> str:
    """Open an address in the browser; return what happened as a sentence, with the address."""
    if not has_display(os.environ, sys.platform):
        return f"no browser was opened, there is no display here; the page is {address}"
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    return f"opened in the browser: {address}" if opened else f"no browser was found; the page is {address}"


def has_display(environ: Mapping[str, str], system: str) -> bool:
    """Whether a browser would have a screen; one that BROWSER names is thought to know its own."""
    return system in ("darwin", "win32") or any(environ.get(name) for name in (*_SCREENS, "BROWSER"))
