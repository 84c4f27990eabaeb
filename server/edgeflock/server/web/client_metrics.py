"""The metrics of each client: its id is a label, so they exist in runs of few clients only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edgeflock.server.web.members import Shown

_AWAY = ("away", "left", "unknown", "gone")


def client_metrics(clients: Sequence[Shown]) -> Iterator[Metric]:
    """Yield the families; every client is seated, hence its id is of letters, digits, dots and dashes."""
    online = GaugeMetricFamily(
        "edgeflock_client_online", "Whether the client is connected.", labels=["client"]
    )
    seen = GaugeMetricFamily(
        "edgeflock_client_last_seen_timestamp_seconds", "When the client said something.", labels=["client"]
    )
    memory = GaugeMetricFamily(
        "edgeflock_client_peak_memory_bytes", "Peak resident memory, as it states.", labels=["client"]
    )
    heat = GaugeMetricFamily(
        "edgeflock_client_temperature_celsius", "Highest temperature of the newest round.", labels=["client"]
    )
    energy = CounterMetricFamily(
        "edgeflock_client_energy_joules", "Energy, as it states: measured or from a model.", labels=["client"]
    )
    cpu = CounterMetricFamily("edgeflock_client_cpu_seconds", "CPU seconds, as it states.", labels=["client"])
    moved = CounterMetricFamily(
        "edgeflock_client_payload_bytes", "Payload of the client.", labels=["client", "direction"]
    )
    updates = CounterMetricFamily(
        "edgeflock_client_updates", "Final words on its updates.", labels=["client", "outcome"]
    )
    for shown in clients:
        name = shown["id"]
        online.add_metric([name], float(shown["state"] not in _AWAY))
        if "seen" in shown:
            seen.add_metric([name], shown["seen"])
        if "rss" in shown:
            memory.add_metric([name], shown["rss"])
        if "temperature" in shown:
            heat.add_metric([name], shown["temperature"])
        if "energy" in shown:
            energy.add_metric([name], shown["energy"])
        cpu.add_metric([name], shown.get("cpu", 0.0))
        for way in ("down", "up"):
            moved.add_metric([name, way], shown.get(way, 0.0))
        for outcome in ("counted", "late", "missed"):
            updates.add_metric([name, outcome], shown.get(outcome, 0))
    yield from (online, seen, memory, heat, energy, cpu, moved, updates)
