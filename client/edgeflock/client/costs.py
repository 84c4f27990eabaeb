"""What a client's rounds take, as values: of the local work when it is done, of the round at its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T", bool, int, float)


@dataclass(frozen=True)
class Readings:
    """What the device's sensors say of a round; None where there is none."""

    peak_gpu_bytes: int | None = None
    temperature_c: float | None = None  # the highest
    throttled: bool | None = None
    energy_j: float | None = None
    energy_source: int = 0  # the wire's EnergySource

    def with_rest(self, rest: Readings) -> Readings:
        """Return these and what the sensors have said since."""
        return Readings(
            highest(self.peak_gpu_bytes, rest.peak_gpu_bytes),
            highest(self.temperature_c, rest.temperature_c),
            highest(self.throttled, rest.throttled),
            None if self.energy_j is None else self.energy_j + (rest.energy_j or 0.0),
            self.energy_source,
        )


def highest(one: T | None, other: T | None) -> T | None:
    """Return the higher of what is known."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


@dataclass(frozen=True)
class TrainCost:
    """Costs of the local work, known when the update is complete."""

    train_s: float = 0.0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    fetch_s: float = 0.0
    samples_done: int = 0
    used_up: str = ""  # the allowance that ended the training before its last step
    readings: Readings = field(default_factory=Readings)

    def fields(self) -> dict[str, Any]:
        """Return what `asdict` would, many times faster."""
        return {**vars(self), "readings": vars(self.readings)}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> TrainCost:
        """Return the costs that had these fields; other versions may have stored more or fewer."""
        known = {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
        return cls(**{**known, "readings": Readings(**stored.get("readings", {}))})


class RoundCost(NamedTuple):
    """Costs of a round, known when its verdict is there. The four times sum to the round's wall time."""

    round: int
    fetch_s: float
    train_s: float
    deliver_s: float
    wait_s: float
    cpu_s: float
    peak_rss_bytes: int
    readings: Readings = Readings()

    def fields(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**self._asdict(), "readings": vars(self.readings)}

    def with_rest(self, rest: RoundCost) -> RoundCost:
        """Return these and what came after the verdict: a run's end has no round of its own."""
        sums = {name: getattr(self, name) + getattr(rest, name) for name in _SUMS}
        peak = max(self.peak_rss_bytes, rest.peak_rss_bytes)
        return self._replace(**sums, peak_rss_bytes=peak, readings=self.readings.with_rest(rest.readings))


_SUMS = ("fetch_s", "train_s", "deliver_s", "wait_s", "cpu_s")
