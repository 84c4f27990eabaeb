"""What clients state of their devices and costs, as columns and fields; what cannot be is unknown. Pure."""

from __future__ import annotations

import math
from typing import Any

from edgeflock.server.costs.catalogue import BY_CLIENT, Column, Origin
from edgeflock.server.costs.rows import Row
from edgeflock.v1 import aggregator_pb2 as pb

LONGEST_S = 1e9  # 31 years
MOST = 2**53  # bytes, samples and the like: whole numbers that floats still tell apart
MOST_J = 1e15
_LARGEST = {"seconds": LONGEST_S, "energy": MOST_J}
_HOT = (-100.0, 250.0)  # degrees that a device can have
_COLUMNS = {one.name: one for one in BY_CLIENT if one.origin is Origin.CLIENT}
# By message: looked up once, for a thousand clients state theirs in every round.
_FIELDS: dict[type, tuple[Column, ...]] = {
    kind: tuple(_COLUMNS[field.name] for field in kind.DESCRIPTOR.fields if field.name in _COLUMNS)
    for kind in (pb.TrainCost, pb.RoundCost)
}


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
        "hold_out": device.hold_out if 0 < device.hold_out < 1 else None,
    }
    return {name: value for name, value in said.items() if value}


def of_training(cost: pb.TrainCost) -> Row:
    """Return what a header states, by column."""
    return _of_fields(cost) | _of_sensors(cost.readings)


def of_progress(said: pb.Progress) -> pb.Progress:
    """Return what a client says of its training, without what this version does not know: it is kept."""
    kept = pb.Progress()
    kept.CopyFrom(said)
    kept.DiscardUnknownFields()
    return kept


def of_round(cost: pb.RoundCost) -> Row:
    """Return what a report states, by column; what it says of bytes is not taken, the server counts them."""
    return _of_fields(cost) | _of_sensors(cost.readings)


def _of_fields(cost: pb.TrainCost | pb.RoundCost) -> dict[str, float | int | None]:
    return {column.name: _believed(column, getattr(cost, column.name)) for column in _FIELDS[type(cost)]}


def _of_sensors(readings: pb.Readings) -> dict[str, float | int | None]:
    """Return what the device told; a column that it did not tell is left as it is."""
    given = {field.name: value for field, value in readings.ListFields() if field.name in _COLUMNS}
    found = {name: _believed(_COLUMNS[name], value) for name, value in given.items()}
    if found.get("energy_j") is None or found.get("energy_source") is None:
        found |= dict.fromkeys(("energy_j", "energy_source", "exam_j"))  # nobody knows where from: none
    return {name: value for name, value in found.items() if value is not None}


def _believed(column: Column, value: Any) -> float | int | None:
    """Return a value as it may stand in the ledger; None if it cannot be."""
    if column.quantity == "celsius":
        return value if _HOT[0] < value < _HOT[1] else None
    if column.name == "energy_source":
        return int(value) if value in pb.EnergySource.values()[1:] else None
    if column.kind is int:
        return min(int(value), MOST)
    return value if 0 <= value <= _LARGEST[column.quantity] else None  # nor is NaN
