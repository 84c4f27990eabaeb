"""A run's options, figures and model in MLflow, wherever MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.export import tracked
from edgeflock.lab.export.feed import scalars
from edgeflock.server.journal.reader import Event

_METRICS, _PARAMS = 1000, 100  # that one request may carry
_STATUS = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
_TRIES, _APART_S = 5, 1.0  # several runs of a comparison make the same store at a time


class MlflowTrouble(EdgeflockError):
    """MLflow has refused something, or cannot be reached."""


class MlflowRun:
    """One run in MLflow: made at the first writing, gone on with at every other one."""

    def __init__(self, run_dir: Path, place: Path) -> None:
        self._run_dir, self._place = run_dir, place
        self._heading = tracked.heading(run_dir)
        self._metrics: list[Any] = []
        self._told = False  # to this store, by this process
        with _trouble():
            self._client = _client()
            self.uri = str(self._client.tracking_uri)
            note = tracked.read_note(place)
            self._note: dict[str, Any] = (
                note if note.get("uri") == self.uri else {"uri": self.uri, "cursor": 0}
            )

    @property
    def cursor(self) -> int:
        """The last event of the run that is in MLflow."""
        return int(self._note["cursor"])

    @property
    def words(self) -> str:
        """Where the figures are, and how they are seen."""
        return f"{self.uri}; see them with: mlflow ui --backend-store-uri {self.uri}"

    def add(self, event: Event) -> int:
        """Take the figures of an event and return how many there were."""
        from mlflow.entities import Metric

        step, at = int(event.number("round") or 0), int(event.at * 1000)
        found = [Metric(tag, value, at, step) for tag, value in scalars(event)]
        self._metrics += found
        return len(found)

    def keep(self, cursor: int) -> None:
        """Send what was added, and note how far that is."""
        with _trouble():
            run = self._run()
            for first in range(0, len(self._metrics), _METRICS):
                self._client.log_batch(run, metrics=self._metrics[first : first + _METRICS])
        self._metrics.clear()
        self._note |= {"cursor": cursor, "concluded": False}
        tracked.write_note(self._place, self._note)

    def conclude(self) -> None:
        """Of a run that is over, say how it ended, what it cost in all, and give its model."""
        ending, totals = tracked.ending(self._run_dir)
        if ending is None or self._note.get("concluded", True):
            return
        with _trouble(), tracked.final_model(self._run_dir) as model:
            run = self._run()
            for name, value in totals.items():
                self._client.log_metric(run, name, value)
            if model is not None:
                self._client.log_artifact(run, str(model))
            self._client.set_terminated(run, _STATUS.get(ending.kind, "FINISHED"))
        self._note |= {"concluded": True}
        tracked.write_note(self._place, self._note)

    def close(self) -> None:
        """Nothing is held."""

    def _run(self) -> str:
        """Return the run's id in MLflow, made if need be; one that was over goes on."""
        if "run" not in self._note:
            experiment = _experiment(self._client, self._heading.group)
            made = self._client.create_run(experiment, run_name=self._heading.name)
            self._note["run"] = made.info.run_id
            tracked.write_note(self._place, self._note)
            self._tell({})
        elif not self._told:
            if self._note.get("concluded"):
                self._client.update_run(self._note["run"], status="RUNNING")
            self._tell(self._client.get_run(self._note["run"]).data.params)
        self._told = True
        return str(self._note["run"])

    def _tell(self, known: dict[str, str]) -> None:
        """Tell the options; one with another value than before becomes a tag: MLflow changes no parameter."""
        from mlflow.entities import Param, RunTag

        run, options = self._note["run"], self._heading.options
        new = [Param(name, value) for name, value in options.items() if name not in known]
        for first in range(0, len(new), _PARAMS):
            self._client.log_batch(run, params=new[first : first + _PARAMS])
        other = {name: value for name, value in options.items() if known.get(name, value) != value}
        tags: Sequence[Any] = [RunTag(f"now.{name}", value) for name, value in other.items()]
        if tags:
            self._client.log_batch(run, tags=tags)


def _client() -> Any:
    """Return MLflow's client; making a store is tried again, for others may make it at the same time."""
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.WARNING)  # that it makes tables is no news
    for left in reversed(range(_TRIES)):
        try:
            client = MlflowClient()
            client.search_experiments(max_results=1)
            return client
        except Exception:  # of SQLAlchemy, if another process makes the same tables
            if not left:
                raise
            time.sleep(_APART_S)
    raise AssertionError  # the last try has returned or raised


def _experiment(client: Any, usual: str) -> str:
    """Return the id of the experiment that MLflow's variables name, or that of the usual one."""
    from mlflow.exceptions import MlflowException

    if asked := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return asked
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or usual
    if (found := client.get_experiment_by_name(name)) is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:  # another run has made it meanwhile
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


@contextmanager
def _trouble() -> Iterator[None]:
    """Say in a sentence what MLflow does not do; what it raises is of several libraries."""
    try:
        yield
    except EdgeflockError:
        raise
    except Exception as error:
        where = os.environ.get("MLFLOW_TRACKING_URI", "its own store")
        first = str(error).strip().partition("\n")[0]
        raise MlflowTrouble(f"MLflow ({where}) says {type(error).__name__}: {first}") from error
