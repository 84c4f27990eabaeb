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
    exam_j: float | None = None  # of testing its own model, not in energy_j

    def with_rest(self, rest: Readings) -> Readings:
        """Return these and what the sensors have said since."""
        return Readings(
            highest(self.peak_gpu_bytes, rest.peak_gpu_bytes),
            highest(self.temperature_c, rest.temperature_c),
            highest(self.throttled, rest.throttled),
            both(self.energy_j, rest.energy_j),
            self.energy_source or rest.energy_source,
            both(self.exam_j, rest.exam_j),
        )


def both(one: float | None, other: float | None) -> float | None:
    """Return the sum of what is known."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def highest(one: T | None, other: T | None) -> T | None:
    """Return the higher of what is known."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


class Passes(NamedTuple):
    """What local work has computed, as far as it came."""

    steps: int = 0
    samples_done: int = 0  # in all steps together
    forward_samples: int = 0  # that passed through the model, in all passes together
    backward_samples: int = 0  # and back

    def plus(self, more: Passes) -> Passes:
        return Passes(*(one + other for one, other in zip(self, more, strict=True)))


class ExamCost(NamedTuple):
    """What the tests of the client's own model took; no cost of its rounds."""

    seconds: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class TrainCost:
    """Costs of the local work, known when the update is complete."""

    train_s: float = 0.0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    fetch_s: float = 0.0
    samples_done: int = 0
    forward_samples: int = 0
    backward_samples: int = 0
    exam_s: float = 0.0
    exam_cpu_s: float = 0.0
    held_up_s: float = 0.0  # by tests of own models in this process
    busy_s: float = 0.0  # in which this process trained anybody in this round, up to the end of this training
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
    """Costs of a round, known when its verdict is there. The four times and that of the tests sum to the
    round's wall time."""

    round: int
    fetch_s: float
    train_s: float
    deliver_s: float
    wait_s: float
    cpu_s: float
    peak_rss_bytes: int
    readings: Readings = Readings()
    exam_s: float = 0.0
    exam_cpu_s: float = 0.0
    steps: int = 0
    samples_done: int = 0
    forward_samples: int = 0
    backward_samples: int = 0

    def fields(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**self._asdict(), "readings": vars(self.readings)}

    def with_rest(self, rest: RoundCost) -> RoundCost:
        """Return these and what came after the verdict: a run's end has no round of its own."""
        sums = {name: getattr(self, name) + getattr(rest, name) for name in _SUMS}
        peak = max(self.peak_rss_bytes, rest.peak_rss_bytes)
        return self._replace(**sums, peak_rss_bytes=peak, readings=self.readings.with_rest(rest.readings))


_SUMS = ("fetch_s", "train_s", "deliver_s", "wait_s", "cpu_s", "exam_s", "exam_cpu_s", *Passes._fields)
