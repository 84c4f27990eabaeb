"""What every place tells of a run's figures, side by side with the recount."""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

from edgeflock.lab.export import ledger
from edgeflock.lab.findings.outcome import outcome
from edgeflock.lab.history import TIME_LINE, read
from edgeflock.lab.report.key_figures import figures
from edgeflock.server.console.summary import rows
from edgeflock.server.journal.reader import Feed
from edgeflock.server.web.metrics import Metrics
from edgeflock.server.web.picture import Picture
from edgeflock.server.web.tail import Tail
from support.recount import budgets, own, recount

_EXACT, _SHOWN = 1e-9, 6e-3  # of what is a number, and of what is shown with three digits
_AMOUNT = re.compile(r"(-?[\d.,]+)\s*(µ|m|k|M|G|T|P)?(B|s|J|FLOP|min|h)\b")
_POWERS = {"µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIMES = {"min": 60.0, "h": 3600.0}
Told = tuple[str, str, float, float]  # where, which figure, how much, and how exactly


def differences(run_dir: Path) -> list[str]:
    """Return where a figure is not the recounted one; nobody may write the journal meanwhile."""
    counted = recount(run_dir)
    return [
        f"{place}: {figure} is {value!r}, recounted {counted[figure]!r}"
        for place, figure, value, exactness in told(run_dir)
        if not math.isclose(value, counted[figure], rel_tol=exactness, abs_tol=1e-9)
    ]


def told(run_dir: Path) -> Iterator[Told]:
    """Yield every figure by every place that tells it."""
    counted = recount(run_dir)
    yield "bundle_bytes", "bytes", counted["bytes by what they held"], _EXACT
    yield "column flops", "operations", counted["operations as written"], _EXACT
    names = {"time": "seconds", "bytes": "bytes", "cpu": "cpu", "energy": "energy of clients"}
    for resource, used in budgets(run_dir).items():
        yield f"budget of {resource}", names[resource], used, _EXACT
    yield from _of_reports(run_dir)
    yield from _of_the_table(run_dir)
    yield from _of_the_dashboard(run_dir)
    yield from _of_exports(run_dir)


def _of_reports(run_dir: Path) -> Iterator[Told]:
    history = read(run_dir)
    names = {
        "bytes": "bytes", "bytes_down": "bytes down", "bytes_up": "bytes up", "seconds": "seconds",
        "cpu_s": "cpu of clients", "flops": "operations", "energy_j": "energy",
    }  # fmt: skip
    for name, figure in names.items():
        yield "report", figure, history.total.get(name, 0.0), _EXACT
    total = outcome(history, "global", (), 10**9).total
    for name in ("bytes", "seconds", "flops", "energy_j"):
        yield "compare", names[name], total.get(name) or 0.0, _EXACT
    of_clients = {"bytes_down": "bytes down", "bytes_up": "bytes up", "cpu_s": "cpu of clients"}
    for name, figure in of_clients.items():
        value = sum(client.costs.get(name, 0.0) for client in history.clients)
        yield "the report's clients", figure, value, _EXACT
    shown = {"bytes": "bytes", "time": "seconds", "CPU time": "cpu of clients", "operations": "operations"}
    for title, text, _ in figures(history):
        if title in shown and (amount := _read(text)) is not None:
            yield "the report's first screen", shown[title], amount, _SHOWN


def _of_the_table(run_dir: Path) -> Iterator[Told]:
    """What `fl-lab run` prints at its end."""
    with contextlib.closing(Feed(run_dir)) as feed:
        found = dict(rows(run_dir, feed.read()))
    shown = {
        "bytes up": "bytes up", "bytes down": "bytes down", "time": "seconds", "operations": "operations",
        "budget of time": "seconds", "budget of bytes": "bytes", "budget of cpu": "cpu",
        "budget of energy": "energy of clients",
    }  # fmt: skip
    if "time" in own(run_dir):  # the simulated clock's count stands in the place of ours
        del shown["budget of time"]
    for title, figure in shown.items():
        if (value := _read(found.get(title, ""))) is not None:
            yield f"the table's {title}", figure, value, _SHOWN


def _of_the_dashboard(run_dir: Path) -> Iterator[Told]:
    picture = Picture()
    with contextlib.closing(Tail(run_dir)) as tail:
        while (news := tail.look()) is not None:
            picture.take(news)
    samples = dict[str, float]()
    for line in Metrics(picture, os.getpid(), most_clients=100).text().decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    for way in ("down", "up"):
        yield (
            "metrics",
            f"bytes {way}",
            samples[f'edgeflock_payload_bytes_total{{direction="{way}"}}'],
            _EXACT,
        )
    phases = [f'edgeflock_round_phase_seconds_total{{phase="{name[:-2]}"}}' for name in TIME_LINE]
    yield "metrics", "seconds", sum(samples.get(name, 0.0) for name in phases), _EXACT
    yield "metrics", "cpu of clients", samples["edgeflock_clients_cpu_seconds_total"], _EXACT
    joules = samples.get("edgeflock_clients_energy_joules_total", 0.0)
    yield "metrics", "energy of clients", joules, _EXACT
    members = [shown for shown in picture.members.all() if "seat" in shown]
    for way in ("down", "up"):
        yield "dashboard", f"bytes {way}", sum(shown.get(way, 0.0) for shown in members), _EXACT
    yield "dashboard", "seconds", sum(picture.seconds.get(name, 0.0) for name in TIME_LINE), _EXACT


def _of_exports(run_dir: Path) -> Iterator[Told]:
    path = run_dir.parent / "recounted.csv"
    ledger.write(run_dir, path)
    beside = path.with_name("recounted.rounds.csv")
    names = {
        "bytes_down": "bytes down",
        "bytes_up": "bytes up",
        "cpu_s": "cpu of clients",
        "flops": "operations",
    }
    with path.open(encoding="utf-8", newline="") as file:
        clients = list(csv.DictReader(file))
    with beside.open(encoding="utf-8", newline="") as file:
        rounds = list(csv.DictReader(file))
    for name, figure in names.items():
        yield "export", figure, sum(float(row[name] or 0.0) for row in clients), _EXACT
    seconds = sum(float(row[name] or 0.0) for row in rounds for name in TIME_LINE)
    yield "export", "seconds", seconds, _EXACT


def _read(text: str) -> float | None:
    """Return the first amount with a unit, in the plain unit."""
    found = _AMOUNT.match(text)
    if found is None:
        return None
    number, prefix, unit = float(found[1].replace(",", "")), found[2] or "", found[3]
    return number * _POWERS[prefix] * _TIMES.get(unit, 1.0)
