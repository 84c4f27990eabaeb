"""The metrics' names, and that Grafana and Prometheus under deploy/ ask for metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeflock.server.web.metrics import Metrics
from edgeflock.server.web.picture import Picture
from edgeflock.server.web.tail import Event, News
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = re.compile(r"\bedgeflock_\w+")


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
    picture.take(News(events=events, seats=[(0, "a", 3)], recent={0: costs}, latest={0: costs}))
    member = pb.ClientStatus(client_id="a", seated=True, online=True, unseen_s=1)
    share = pb.BudgetShare(name="time", used=3, limit=12)
    state = aggregator_pb2.RUN_STATE_RUNNING
    picture.observe(
        pb.StatusResponse(state=state, rounds=9, clients=2, members=[member], budgets=[share]), {}
    )
    return Metrics(picture, 1, most_clients=5).text().decode()


def values(text: str) -> dict[str, float]:
    """Return each series as it is written, with its value."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_the_values_are_those_of_the_run(text: str) -> None:
    found = values(text)
    wanted = {
        'edgeflock_run_info{method="fedavg",run_id=""}': 1,
        'edgeflock_updates_total{verdict="counted"}': 1,
        'edgeflock_updates_total{verdict="late"}': 1,
        'edgeflock_round_phase_seconds_total{phase="open"}': 1.5,
        'edgeflock_accuracy_ratio{model="global"}': 0.75,
        'edgeflock_budget_used_ratio{budget="time"}': 0.25,
        'edgeflock_client_temperature_celsius{client="a"}': 51.5,
        'edgeflock_client_energy_joules_total{client="a"}': 20,
        "edgeflock_training_loss": 0.5,
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_names_follow_the_conventions(text: str) -> None:
    families = list(text_string_to_metric_families(text))
    assert [family.name for family in families if not family.documentation] == []
    counters = {sample.name for family in families if family.type == "counter" for sample in family.samples}
    assert [name for name in counters if not name.endswith(("_total", "_created"))] == []
    units = re.compile(r"_(ms|milliseconds|minutes|kilobytes|kb|mb|percent)(_|$)")
    assert [family.name for family in families if units.search(family.name)] == []


def questions() -> Iterator[tuple[str, str]]:
    """Yield where a metric is asked for, and the expression."""
    board = json.loads((DEPLOY / "grafana" / "edgeflock.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        yield variable["name"], variable.get("definition", "")
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
    yield "alerts", rules


def test_grafana_and_the_alerts_ask_for_metrics_that_exist(text: str) -> None:
    known = {name.partition("{")[0] for name in values(text)}
    asked = {(where, name) for where, expression in questions() for name in NAME.findall(expression)}
    assert len(asked) > 15
    server = {name for name in asked if "_process_" in name[1]}  # of /proc, which another system has not
    assert {name for name in asked - server if name[1] not in known} == set()


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


def test_prometheus_itself_accepts_the_files_and_the_text(text: str) -> None:
    tool = which("promtool")
    if tool is None:
        pytest.skip("promtool (of Prometheus) is not installed")
    folder = DEPLOY / "prometheus"
    for command, given in (
        (["check", "config", str(folder / "prometheus.yml")], ""),
        (["check", "rules", str(folder / "alerts.yml")], ""),
        (["check", "metrics"], text),
    ):
        done = subprocess.run([tool, *command], input=given, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
