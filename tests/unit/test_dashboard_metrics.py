"""The metrics' names, and that Grafana and Prometheus under deploy/ ask for metrics that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeflock.server.journal.reader import Event, Growth, SeatRow
from edgeflock.server.web.metrics import Metrics
from edgeflock.server.web.picture import Picture
from edgeflock.server.web.tail import News
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = re.compile(r"\bedgeflock_\w+")
HAS_PROC = Path("/proc/self/stat").exists()  # what the processes take is read there


@pytest.fixture
def text() -> str:
    """The metrics of a run that has something to say of everything."""
    picture = Picture()
    line = {
        "round": 1,
        "counted": 1,
        "not_counted": {"b": "late"},
        "loss": 0.5,
        "seconds": 2.0,
        "open_s": 1.5,
    }
    events = [
        Event(1, 1e9, "run_started", {"method": "fedavg", "rounds": 9}),
        Event(2, 1e9, "round_committed", line),
        Event(3, 1e9, "evaluated", {"round": 1, "model": "global", "accuracy": 0.75, "loss": 0.4}),
    ]
    costs = {"cpu_s": 1.0, "bytes_up": 5, "energy_j": 20.0, "temperature_c": 51.5, "peak_rss_bytes": 7}
    grown = {0: Growth(costs, costs)}
    seconds = {"open_s": 1.5, "gather_s": 3.0}
    picture.take(News(events=events, seats=[SeatRow(0, "a", 3)], recent=grown, seconds=seconds))
    quarantine = aggregator_pb2.Quarantine(until_round=20, reason="malformed")
    member = pb.ClientStatus(
        client_id="a", seated=True, online=True, ready=True, unseen_s=1, bad_updates=5, quarantine=quarantine
    )
    shares = [pb.BudgetShare(name="time", used=3, limit=12), pb.BudgetShare(name="energy", used=0, limit=9)]
    state = aggregator_pb2.RUN_STATE_RUNNING
    picture.observe(pb.StatusResponse(state=state, rounds=9, clients=2, members=[member], budgets=shares), {})
    return Metrics(picture, os.getpid(), most_clients=5).text().decode()


def series(text: str) -> set[str]:
    """Return the names of all series."""
    return {name.partition("{")[0] for name in values(text)}


def values(text: str) -> dict[str, float]:
    """Return each series as it is written, with its value."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_the_values_are_those_of_the_run(text: str) -> None:
    found = values(text)
    assert 'edgeflock_budget_used_ratio{budget="energy"}' not in found, "nobody states it: that is not 0"
    wanted = {
        'edgeflock_run_info{method="fedavg",run_id=""}': 1,
        'edgeflock_updates_total{verdict="counted"}': 1,
        'edgeflock_updates_total{verdict="late"}': 1,
        'edgeflock_round_phase_seconds_total{phase="open"}': 1.5,
        'edgeflock_payload_bytes_total{direction="up"}': 5,
        'edgeflock_accuracy_ratio{model="global"}': 0.75,
        'edgeflock_budget_used_ratio{budget="time"}': 0.25,
        'edgeflock_client_temperature_celsius{client="a"}': 51.5,
        'edgeflock_client_energy_joules_total{client="a"}': 20,
        "edgeflock_training_loss": 0.5,
        'edgeflock_clients{state="quarantined"}': 1,
        "edgeflock_clients_quarantined": 1,
        "edgeflock_bad_updates_total": 5,
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_names_follow_the_conventions(text: str) -> None:
    families = list(text_string_to_metric_families(text))
    assert [family.name for family in families if not family.documentation] == []
    counters = {sample.name for family in families if family.type == "counter" for sample in family.samples}
    assert [name for name in counters if not name.endswith(("_total", "_created"))] == []
    units = re.compile(r"_(ms|milliseconds|minutes|kilobytes|kb|mb|percent)(_|$)")
    assert [family.name for family in families if units.search(family.name)] == []


def panels() -> Iterator[tuple[str, str]]:
    """Yield the titles of Grafana's panels, with each expression."""
    board = json.loads((DEPLOY / "grafana" / "edgeflock.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def questions() -> Iterator[tuple[str, str]]:
    """Yield where a metric is asked for, and the expression."""
    yield from panels()
    board = json.loads((DEPLOY / "grafana" / "edgeflock.json").read_text("utf-8"))
    for variable in board["templating"]["list"]:
        yield variable["name"], variable.get("definition", "")
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
    yield "alerts", rules


def test_grafana_and_the_alerts_ask_for_metrics_that_exist(text: str) -> None:
    known = {name.partition("{")[0] for name in values(text)}
    asked = {(where, name) for where, expression in questions() for name in NAME.findall(expression)}
    assert len(asked) > 15
    missing = {name for name in asked if name[1] not in known}
    assert {name for name in missing if HAS_PROC or "_process_" not in name[1]} == set()


def test_grafana_and_the_alerts_ask_for_labels_that_exist(text: str) -> None:
    labels: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for label, value in sample.labels.items():
                labels.setdefault(sample.name, {}).setdefault(label, set()).add(value)
    asked = [
        (where, name, *matcher)
        for where, expression in questions()
        for name, matchers in re.findall(r"(edgeflock_\w+)\{([^}]*)\}", expression)
        for matcher in re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', matchers)
        if matcher[0] not in ("instance", "job")  # Prometheus adds these
    ]
    assert len(asked) >= 5
    assert [one for one in asked if one[3] not in labels.get(one[1], {}).get(one[2], set())] == []


def test_every_metric_is_in_the_document(text: str) -> None:
    document = (DEPLOY.parent / "docs" / "dashboard.md").read_text("utf-8")
    known = set(NAME.findall(document))
    families = {re.sub(r"_(server|dashboard)_process_.*", r"_\1_process_", name) for name in series(text)}
    clients = {name for name in families if name.startswith("edgeflock_client_")}
    assert families - clients - known == set()
    assert [name for name in known if name.endswith("_total") and name not in families] == []


def test_the_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    board: dict[str, Any] = json.loads((DEPLOY / "grafana" / "edgeflock.json").read_text("utf-8"))
    places: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places
        assert at["x"] + at["w"] <= 24
        places |= cells
    titles = [(panel["title"], panel["type"]) for panel in board["panels"]]
    assert len(set(titles)) == len(titles)


def promtool(*command: str, given: str = "") -> None:
    """Let Prometheus' own tool look at something; it must find nothing wrong."""
    tool = which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed; it is in Debian's package prometheus")
    done = subprocess.run([tool, *command], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_prometheus_itself_accepts_the_files_and_the_text(text: str) -> None:
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    promtool("check", "rules", str(DEPLOY / "prometheus" / "alerts.yml"))
    promtool("check", "metrics", given=text)


def test_prometheus_itself_raises_the_alerts_that_are_true_and_no_others() -> None:
    promtool("test", "rules", str(DEPLOY / "prometheus" / "alerts_test.yml"))


def test_prometheus_itself_understands_what_grafana_asks(tmp_path: Path) -> None:
    filled = [text.replace("$__rate_interval", "1m").replace("$instance", "a") for _, text in panels()]
    assert len(filled) > 15
    asked = [{"record": f"asked:{number}", "expr": text} for number, text in enumerate(filled)]
    rules = tmp_path / "asked.yml"
    rules.write_text(json.dumps({"groups": [{"name": "grafana", "rules": asked}]}), "utf-8")
    promtool("check", "rules", str(rules))
