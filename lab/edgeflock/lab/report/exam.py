"""The final model's answers to the server's test samples: a confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeflock.common.errors import BadData, EdgeflockError, MissingData
from edgeflock.common.scores import ACCURACY
from edgeflock.lab.history import GLOBAL, History

if TYPE_CHECKING:
    from edgeflock.common.models.kit.base import Net
    from edgeflock.server.start.samples import TestSet

_BATCH = 256
_TRIES = 3  # while a run goes on, models come and go
_MODEL = "model.safetensors"


@dataclass(frozen=True)
class Exam:
    """True classes against predicted ones."""

    table: tuple[tuple[int, ...], ...]
    round: int  # whose model it is
    final: bool
    journalled: float | None  # the accuracy that the server found for that round

    @property
    def accuracy(self) -> float:
        right = sum(row[number] for number, row in enumerate(self.table))
        return right / max(1, sum(map(sum, self.table)))

    @property
    def recalls(self) -> list[float | None]:
        """Return the share of every class that was recognised; None where there are no samples."""
        return [row[number] / sum(row) if sum(row) else None for number, row in enumerate(self.table)]


def examine(history: History, data_root: Path | None) -> Exam:
    """Test the run's newest model. Raises MissingData or BadData with the reason if that cannot be done."""
    points, task = history.curve(GLOBAL), history.config.task
    if task != "classification":
        raise MissingData(f"it is made of runs of classification, this one is of {task}")
    if history.config.dataset is None and history.config.eval_data is None:
        raise MissingData("the server has no test samples, and devices send sums of theirs")
    if not history.rounds:
        raise MissingData("no round is committed")
    if not points:
        raise MissingData("the run has not tested one model for all clients")
    try:
        weights = _weights(history)
        table = _answers(history, weights, data_root)
    except MissingData:
        raise
    except EdgeflockError as error:
        raise BadData(str(error)) from None
    told = next(
        (
            point.evaluation.of(ACCURACY.name, history.figure.name)
            for point in points
            if point.round == weights.round
        ),
        None,
    )
    return Exam(table, weights.round, history.ending is not None, told)


@dataclass(frozen=True)
class _Weights:
    """A model as it was read."""

    path: Path
    round: int
    tensors: dict[str, Any]


def _weights(history: History) -> _Weights:
    """Read the newest model: a run that goes on may have a newer one by now, and not this one."""
    last = history.rounds[-1].number
    asked = history.run_dir / "rounds" / f"{last:06d}" / _MODEL
    files = [(history.run_dir / _MODEL, last)] if history.ending is not None else []
    for _ in range(_TRIES):
        for path, round in [*files, (asked, last), *(() if history.ending else _later(history))]:
            if (tensors := _read(path)) is not None:
                return _Weights(path, round, tensors)
    raise MissingData(f"{asked} is gone")


def _later(history: History) -> list[tuple[Path, int]]:
    """Return the models after the last one of the history, the newest first."""
    found = sorted((history.run_dir / "rounds").glob(f"[0-9]*/{_MODEL}"), reverse=True)
    named = [(path, int(path.parent.name)) for path in found if path.parent.name.isdigit()]
    return [(path, round) for path, round in named if round > history.rounds[-1].number]


def _read(path: Path) -> dict[str, Any] | None:
    """Return the tensors of a file, None if there is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        return None
    except (SafetensorError, RuntimeError, OSError) as error:
        raise BadData(_foreign(path, error)) from None


def _foreign(path: Path, error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{path} does not hold this run's model: {first}"


def _answers(history: History, weights: _Weights, data_root: Path | None) -> tuple[tuple[int, ...], ...]:
    import torch

    from edgeflock.server.start.build import build_net
    from edgeflock.server.start.samples import load_test_set

    config = replace(history.config, data_root=data_root or history.config.data_root)
    test = load_test_set(config)
    if weights.path.parent == history.run_dir:  # the result: adapters are in its weights
        config = replace(config, adapter=None)
    net = _filled(build_net(config, test), weights)
    table = torch.zeros(test.classes, test.classes, dtype=torch.int64)
    with torch.no_grad():
        for start in range(0, len(test.y), _BATCH):
            _count(net, test, slice(start, start + _BATCH), table)
    return tuple(map(tuple, table.tolist()))


def _count(net: Net, test: TestSet, part: slice, table: Any) -> None:
    import torch

    _, logits = net(test.x[part])
    if logits.shape[1] != test.classes:
        raise MissingData("the model does not answer with one number for each class")
    places = test.y[part] * test.classes + logits.argmax(1)
    table += torch.bincount(places, minlength=test.classes**2).view(test.classes, test.classes)


def _filled(net: Net, weights: _Weights) -> Net:
    from edgeflock.common.flat import FlatModel

    try:
        net.load_state_dict({**FlatModel(net).lasting, **weights.tensors})  # no round's file holds what stays
    except RuntimeError as error:
        raise BadData(_foreign(weights.path, error)) from None
    return net.eval()
