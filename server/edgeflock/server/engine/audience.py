"""The audience: what the engine says to those who listen to a run, whoever they are and however they came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Audience(Protocol):
    """Everybody who listens to a run; made by whoever brings them."""

    def publish(self) -> None:
        """Something in what they see has changed."""
        ...

    def let_go(self, clients: Iterable[str]) -> None:
        """Nobody waits any more for what is on its way from these."""
        ...
