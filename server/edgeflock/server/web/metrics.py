"""The run as Prometheus metrics: conventional names and units, labels from closed sets.

Those of each client have its id as a label, so they exist in runs of few clients only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from edgeflock.common.verdict import Verdict
from edgeflock.server.costs.budget import unmeasured
from edgeflock.server.web.members import DOINGS, Shown
from edgeflock.server.web.picture import Picture

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
STATES = ("gathering", "running", "paused", "draining", "finished", "unreachable")
_MOST_EVENTS = 64  # names of events; the server has fewer
_AWAY = ("away", "left", "unknown", "gone")


class Metrics:
    """The text of `/metrics`."""

    def __init__(self, picture: Picture, server_pid: int | None, most_clients: int) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(RunCollector(picture, most_clients))
        if server_pid is not None:
            ProcessCollector("edgeflock_server", lambda: server_pid, registry=self._registry)
        ProcessCollector("edgeflock_dashboard", registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class RunCollector(Collector):
    """Makes the metrics from the picture when they are asked for."""

    def __init__(self, picture: Picture, most_clients: int) -> None:
        self._picture, self._most_clients = picture, most_clients

    def describe(self) -> Iterable[Metric]:
        return []  # not collected when it is registered: there is nothing to see yet

    def collect(self) -> Iterator[Metric]:
        yield from self._run()
        yield from self._rounds()
        yield from self._model()
        yield from self._clients()

    def _run(self) -> Iterator[Metric]:
        picture, status = self._picture, self._picture.status
        about = {"run_id": picture.meta.get("run_id", ""), "method": str(picture.started.get("method", ""))}
        yield InfoMetricFamily("edgeflock_run", "The run that is served.", about)
        now = picture.state()
        yield _gauge("run_state", "1 for the state of the run, 0 for the others.", "state",
                     {state: float(state == now) for state in STATES})  # fmt: skip
        yield _single("up", "Whether fl-server answers.", float(status is not None))
        rounds = status.rounds if status is not None else picture.started.get("rounds", 0)
        yield _single("rounds_planned", "Rounds that are asked for.", rounds)
        budgets = status.budgets if status is not None else ()
        known = [b for b in budgets if b.limit and not unmeasured(b.name, b.used)]
        shares = {b.name: b.used / b.limit for b in known}
        yield _gauge("budget_used_ratio", "Part of each budget that is used up.", "budget", shares)
        events = dict(list(picture.story.counts.items())[:_MOST_EVENTS])
        yield _counter("events", "Events in the journal.", "event", events)

    def _rounds(self) -> Iterator[Metric]:
        sums, curves = self._picture.sums, self._picture.curves
        newest = curves.newest()
        yield _single("round", "The newest committed round.", newest.get("round") or 0)
        yield CounterMetricFamily(
            "edgeflock_rounds", "Rounds that were committed, those taken back too.", sums["rounds"]
        )
        verdicts = {str(verdict): float(sums[f"verdict {verdict}"]) for verdict in Verdict}
        verdicts[Verdict.COUNTED] = sums["counted"]
        yield _counter("updates", "Final words on updates.", "verdict", verdicts)
        clients = [shown for shown in self._picture.members.all() if "seat" in shown]
        moved = {way: float(sum(shown.get(way, 0) for shown in clients)) for way in ("down", "up")}
        yield _counter("payload_bytes", "Payload of all clients, from the server's side.", "direction", moved)
        phases = {name.removesuffix("_s"): spent for name, spent in self._picture.seconds.items()}
        yield _counter(
            "round_phase_seconds", "Seconds of the server in each part of a round.", "phase", phases
        )
        last = newest.get("seconds")
        yield _single("last_round_seconds", "How long the newest committed round took.", last or 0)

    def _model(self) -> Iterator[Metric]:
        models = self._picture.models
        for metric in self._picture.measures:
            newest = {model: known[metric.name] for model, known in models.items() if metric.name in known}
            name = f"{metric.name}_ratio" if metric.share else f"evaluation_{metric.name}"
            yield _gauge(name, f"Newest {metric.name} of each evaluated model.", "model", newest)
        trained = self._picture.curves.newest().get("loss")
        if trained is not None:
            yield _single("training_loss", "Mean loss of the clients' training in the newest round.", trained)

    def _clients(self) -> Iterator[Metric]:
        members = [shown for shown in self._picture.members.all() if shown["state"] != "gone"]
        counts = Counter(shown["state"] for shown in members)
        yield _gauge("clients", "Clients by what they do.", "state",
                     {state: float(counts[state]) for state in DOINGS})  # fmt: skip
        seated = [shown for shown in members if "seat" in shown]
        yield _single(
            "seats", "Seats of the run.", self._picture.status.clients if self._picture.status else 0
        )
        held = sum(bool(shown.get("until")) for shown in seated)
        yield _single("clients_quarantined", "Clients that are left out for their bad updates.", held)
        bad = sum(shown.get("bad", 0) for shown in seated)
        yield CounterMetricFamily("edgeflock_bad_updates", "Updates that were refused as bad.", bad)
        cpu = sum(shown.get("cpu", 0.0) for shown in seated)
        yield CounterMetricFamily("edgeflock_clients_cpu_seconds", "CPU seconds that clients state.", cpu)
        if any("energy" in shown for shown in seated):
            energy = sum(shown.get("energy", 0.0) for shown in seated)
            yield CounterMetricFamily("edgeflock_clients_energy_joules", "Energy that clients state.", energy)
        if len(seated) <= self._most_clients:
            yield from client_metrics(seated)


def _single(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"edgeflock_{name}", help, value)


def _gauge(name: str, help: str, label: str, values: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(f"edgeflock_{name}", help, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, help: str, label: str, values: dict[str, float] | dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"edgeflock_{name}", help, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


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
