"""What clients state of their devices and costs, as columns and fields; what cannot be is unknown. Pure."""

from __future__ import annotations

import math

from edgeflock.server.costs.rows import Row
from edgeflock.v1 import aggregator_pb2 as pb

LONGEST_S = 1e9  # 31 years
MOST = 2**53  # bytes, samples and the like: whole numbers that floats still tell apart
MOST_J = 1e15
_HOT = (-100.0, 250.0)  # degrees that a device can have


def of_device(device: pb.Device) -> dict[str, object]:
    """Return what a client says of its device, without what it does not say."""
    said = {
        "machine": device.machine[:40],
        "system": device.system[:80],
        "cores": device.cores,
        "memory_bytes": device.memory_bytes,
        "torch": device.torch[:40],
        "compute": device.compute[:40],
        "python": device.python[:40],
        "asked": device.asked[:40],
        "threads": device.threads,
        "parallel": device.parallel,
        "watts": device.watts if 0 < device.watts < math.inf else None,
    }
    return {name: value for name, value in said.items() if value}


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
    return {
        "fetch_s": _amount(cost.fetch_s, LONGEST_S),
        "train_s": _amount(cost.train_s, LONGEST_S),
        "deliver_s": _amount(cost.deliver_s, LONGEST_S),
        "wait_s": _amount(cost.wait_s, LONGEST_S),
        "cpu_s": _amount(cost.cpu_s, LONGEST_S),
        "peak_rss_bytes": min(cost.peak_rss_bytes, MOST),
        **_of_sensors(cost.readings),
    }


def _of_sensors(readings: pb.Readings) -> dict[str, float | int]:
    """Return what the device told; a column that it did not tell is left as it is."""
    found: dict[str, float | int] = {}
    told = {field.name for field, _ in readings.ListFields()}
    if not told:
        return found
    if "peak_gpu_bytes" in told:
        found["peak_gpu_bytes"] = min(readings.peak_gpu_bytes, MOST)
    if "temperature_c" in told and _HOT[0] < readings.temperature_c < _HOT[1]:
        found["temperature_c"] = readings.temperature_c
    if "throttled" in told:
        found["throttled"] = int(readings.throttled)
    energy_j = _amount(readings.energy_j, MOST_J) if "energy_j" in told else None
    if energy_j is not None and readings.energy_source in pb.EnergySource.values()[1:]:
        found |= {"energy_j": energy_j, "energy_source": int(readings.energy_source)}
    return found


def _amount(stated: float, most: float) -> float | None:
    return stated if 0 <= stated <= most else None  # nor is NaN
