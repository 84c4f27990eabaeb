"""Python's garbage collector in a process of many clients: what is there stays, and it looks seldom."""

from __future__ import annotations

import gc

MANY = 100  # clients, from which on it pays
_EACH, _MOST = 50, 50_000  # new objects that what one client does at a time comes with, and no more than that


def settle(clients: int) -> None:
    """Take what is here as lasting, and look for garbage only after so much work of so many clients.

    What they do at once is thousands of objects that are no garbage: to be looked at again and again while it
    lasts, and with all that was imported, it cost a tenth of a server's time.
    """
    if clients < MANY:
        return
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    gc.set_threshold(max(young, min(_MOST, _EACH * clients)), *older)
