"""What clients state of their costs, as columns of the ledger; what cannot be is unknown. Pure."""

from __future__ import annotations

import math

from edgeflock.server.cost_rows import Row
from edgeflock.v1 import aggregator_pb2 as pb

LONGEST_S = 1e9  # 31 years
MOST = 2**53  # bytes, samples and the like: whole numbers that floats still tell apart
MOST_J = 1e15
_HOT = (-100.0, 250.0)  # degrees that a device can have


def of_training(cost: pb.TrainCost) -> Row:
    """Return what a header states."""
    return {
        "train_s": _amount(cost.train_s, LONGEST_S),
        "fetch_s": _amount(cost.fetch_s, LONGEST_S),
        "cpu_s": _amount(cost.cpu_s, LONGEST_S),
        "peak_rss_bytes": min(cost.peak_rss_bytes, MOST),
        "samples_done": min(cost.samples_done, MOST),
        **_of_sensors(cost.readings),
    }


def of_round(cost: pb.RoundCost) -> Row:
    """Return what a report states; what it says of bytes is not taken, the server counts them."""
    names = ("fetch_s", "train_s", "deliver_s", "wait_s", "cpu_s")
    row = {name: _amount(getattr(cost, name), LONGEST_S) for name in names}
    return {**row, "peak_rss_bytes": min(cost.peak_rss_bytes, MOST), **_of_sensors(cost.readings)}


def _of_sensors(readings: pb.Readings) -> dict[str, float | int]:
    """Return what the device told; a column that it did not tell is left as it is."""
    found: dict[str, float | int] = {}
    if readings.HasField("peak_gpu_bytes"):
        found["peak_gpu_bytes"] = min(readings.peak_gpu_bytes, MOST)
    if readings.HasField("temperature_c") and _HOT[0] < readings.temperature_c < _HOT[1]:
        found["temperature_c"] = readings.temperature_c
    if readings.HasField("throttled"):
        found["throttled"] = int(readings.throttled)
    energy_j = _amount(readings.energy_j, MOST_J) if readings.HasField("energy_j") else None
    if energy_j is not None and readings.energy_source in pb.EnergySource.values()[1:]:
        found |= {"energy_j": energy_j, "energy_source": int(readings.energy_source)}
    return found


def _amount(stated: float, most: float) -> float | None:
    return stated if math.isfinite(stated) and 0 <= stated <= most else None
