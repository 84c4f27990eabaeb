"""What MLflow is told of a run, seen by a stand-in for its client: options, figures, the end, the model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.export import tracked
from edgeflock.lab.export.feed import write
from edgeflock.lab.export.mlflow import MlflowRun
from edgeflock.server.config import TRACKERS, ServerConfig
from edgeflock.server.files.run_toml import from_toml, to_toml
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.reader import Feed
from edgeflock.server.start.children import trackers
from support.told_run import told_run, writing


@dataclass
class Store:
    """A stand-in for MLflow's client, which remembers."""

    tracking_uri: str = "memory:"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def search_experiments(self, max_results: int) -> list[Any]:
        return []

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="7", name=name)

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.status.append(f"{run_name} in {experiment}")
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def get_run(self, run: str) -> Any:
        return SimpleNamespace(data=SimpleNamespace(params=self.params))

    def log_batch(self, run: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        self.metrics += [(one.key, one.value, one.step) for one in metrics]
        self.params |= {one.key: one.value for one in params}
        self.tags |= {one.key: one.value for one in tags}

    def log_metric(self, run: str, name: str, value: float) -> None:
        self.metrics.append((name, value, 0))

    def log_artifact(self, run: str, path: str) -> None:
        self.files.append(Path(path).name)

    def update_run(self, run: str, status: str) -> None:
        self.status.append(status)

    def set_terminated(self, run: str, status: str) -> None:
        self.status.append(status)


def _pair(key: str, value: Any) -> SimpleNamespace:
    return SimpleNamespace(key=key, value=value)


def _metric(key: str, value: float, timestamp: int, step: int) -> SimpleNamespace:
    return SimpleNamespace(key=key, value=value, step=step)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    kept = Store()
    entities = SimpleNamespace(Metric=_metric, Param=_pair, RunTag=_pair)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: kept))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", SimpleNamespace(MlflowException=KeyError))

    @contextmanager
    def model(run_dir: Path) -> Iterator[Path]:
        yield run_dir / tracked.MODEL

    monkeypatch.setattr(tracked, "final_model", model)
    return kept


def give(run_dir: Path) -> int:
    """Give a run to MLflow; return how many figures were new."""
    place = run_dir / "report" / "mlflow"
    place.mkdir(parents=True, exist_ok=True)
    with closing(MlflowRun(run_dir, place)) as made, closing(Feed(run_dir, made.cursor)) as feed:
        return write(feed, made, None)


def tell(run_dir: Path, round: int) -> None:
    with writing(run_dir) as journal:
        write_event(journal, "evaluated", {"round": round, "model": "global", "mae": 0.5}, 1.0)


def test_a_run_is_told_once_with_its_options_its_costs_and_its_model(store: Store, tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    tell(run_dir, 1)
    assert (give(run_dir), give(run_dir)) == (1, 0)
    assert store.metrics[0] == ("mae/global", 0.5, 1)
    assert {name for name, *_ in store.metrics[1:]} >= {"total/bytes", "total/seconds"}
    assert {"method": "fedavg", "rounds": "3"}.items() <= store.params.items()
    assert (store.files, store.status) == ([tracked.MODEL], ["run in 7", "FINISHED"])


def test_a_run_that_goes_on_is_the_same_one_and_what_has_changed_is_a_tag(
    store: Store, tmp_path: Path
) -> None:
    run_dir = told_run(tmp_path / "run")
    tell(run_dir, 1)
    give(run_dir)
    toml = run_dir / "run.toml"
    toml.write_text(to_toml(replace(from_toml(toml), rounds=5)), "utf-8")
    tell(run_dir, 2)
    assert give(run_dir) == 1
    assert store.status == ["run in 7", "FINISHED", "RUNNING", "FINISHED"]
    assert (store.params["rounds"], store.tags) == ("3", {"now.rounds": "5"})


def test_what_the_store_refuses_is_a_sentence(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **more: Any) -> None:
        raise ConnectionError("nobody answers\nat all")

    monkeypatch.setattr(Store, "log_batch", refuse)
    tell(run_dir := told_run(tmp_path / "run"), 1)
    with pytest.raises(
        EdgeflockError, match=r"MLflow \(its own store\) says ConnectionError: nobody answers$"
    ):
        give(run_dir)


def test_the_cells_of_a_comparison_are_one_experiment(tmp_path: Path) -> None:
    cell = told_run(tmp_path / "digits" / "cells" / "fedavg-1")
    alone = told_run(tmp_path / "alone")
    assert (tracked.heading(cell).group, tracked.heading(cell).name) == ("digits", "fedavg-1")
    assert tracked.heading(alone).group == "edgeflock"


def test_figures_go_to_everybody_who_is_named_once() -> None:
    assert trackers(ServerConfig(track=("wandb", "tensorboard"), tensorboard=True)) == [
        "tensorboard",
        "wandb",
    ]
    assert trackers(ServerConfig(track=TRACKERS)) == [*TRACKERS]
    assert trackers(ServerConfig()) == []
