"""The gate book: which gates are here, where clients reach them, and which is whose."""

from __future__ import annotations

import time
from collections import Counter


class GateBook:
    """Gates by name. Where a client had better be is advice: any gate takes any client."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._heard: dict[str, float] = {}  # when, of a gate that is here
        self._home: dict[str, str] = {}  # the gate of a client
        self._taken: Counter[str] = Counter()  # Invariant: how many clients have that home

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where clients reach those that are here."""
        return tuple(address for _, address in sorted(self._addresses.items()))

    def address(self, name: str) -> str | None:
        """Return where clients reach a gate; None: it is not here."""
        return self._addresses.get(name)

    def come(self, name: str, address: str) -> None:
        self._addresses[name] = address
        self.hear(name)

    def hear(self, name: str) -> None:
        """It has said something."""
        self._heard[name] = time.monotonic()

    def silent_s(self, name: str) -> float:
        """Return for how long a gate that is here has said nothing."""
        return time.monotonic() - self._heard[name]

    def go(self, name: str) -> None:
        self._addresses.pop(name, None)
        self._heard.pop(name, None)

    def home(self, client_id: str, gate: str = "") -> str:
        """Return where a client had better be, empty if nowhere else than where it asks; who has come by way
        of a gate stays there."""
        if gate:
            self._settle(client_id, gate)
        elif self._addresses and self._home.get(client_id) not in self._addresses:
            self._settle(client_id, min(sorted(self._addresses), key=self._taken.__getitem__))
        return self._addresses.get(self._home.get(client_id, ""), "")

    def _settle(self, client_id: str, gate: str) -> None:
        self._taken[self._home.get(client_id, "")] -= 1
        self._home[client_id] = gate
        self._taken[gate] += 1
