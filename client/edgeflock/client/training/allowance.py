"""An allowance: what a client may use of the run's budgets in one round, asked before every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Allowance:
    """Limits by resource, and what has been used since the round before; without limits nothing is asked."""

    limits: Mapping[str, float] = field(default_factory=dict)  # "cpu" in seconds, "energy" in joules
    spent: Callable[[], Mapping[str, float]] = dict
    used_up: str = ""  # the resource that ended the work

    def lasts(self) -> bool:
        """Whether another step may be done."""
        if self.limits and not self.used_up:
            spent = self.spent()
            self.used_up = next(
                (name for name, most in self.limits.items() if spent.get(name, 0.0) >= most), ""
            )
        return not self.used_up
