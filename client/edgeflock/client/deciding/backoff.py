"""Back-off: bounded exponential delays with full jitter; the only retry schedule of the client."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FIRST_S = 0.2
MOST_S = 10.0


@dataclass
class Backoff:
    """The delays between the attempts at one thing; `reset` when it succeeded.

    The same generator gives the same delays.
    """

    random: Random
    first_s: float = FIRST_S
    most_s: float = MOST_S
    attempts: int = 0

    def next_s(self, *, retry_after_ms: int = 0, return_within_ms: int = 0) -> float:
        """Return the seconds to wait before the next attempt.

        Never less than what the server asked for (`retry_after_ms`), at most `most_s` more.
        A server that goes down names the time over which its clients shall spread (`return_within_ms`).
        """
        ceiling = min(self.most_s, self.first_s * 2.0 ** min(self.attempts, 60))
        if return_within_ms and not self.attempts:
            ceiling = return_within_ms / 1000
        self.attempts += 1
        return retry_after_ms / 1000 + self.random.uniform(0.0, ceiling)

    def reset(self) -> None:
        self.attempts = 0
