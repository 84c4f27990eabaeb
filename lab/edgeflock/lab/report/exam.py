"""The final model's answers to the server's test samples: a confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeflock.common.errors import BadData, EdgeflockError, MissingData
from edgeflock.lab.history import GLOBAL, History

if TYPE_CHECKING:
    from edgeflock.common.models import Net
    from edgeflock.server.assembly import TestSet

_BATCH = 256


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
    points = history.curve(GLOBAL)
    if not history.rounds:
        raise MissingData("no round is committed")
    if not points:
        raise MissingData("the run has not tested one model for all clients")
    round = history.rounds[-1].number
    journalled = points[-1].evaluation.accuracy if points[-1].round == round else None
    try:
        table = _answers(history, _model_file(history), data_root)
    except MissingData:
        raise
    except EdgeflockError as error:
        raise BadData(str(error)) from None
    return Exam(table, round, history.ending is not None, journalled)


def _model_file(history: History) -> Path:
    last = history.run_dir / "rounds" / f"{history.rounds[-1].number:06d}" / "model.safetensors"
    files = [history.run_dir / "model.safetensors", last] if history.ending is not None else [last]
    found = next((path for path in files if path.is_file()), None)
    if found is None:
        raise MissingData(f"{files[-1]} is gone")
    return found


def _answers(history: History, path: Path, data_root: Path | None) -> tuple[tuple[int, ...], ...]:
    import torch

    from edgeflock.server.assembly import build_net, load_test_set

    config = replace(history.config, data_root=data_root or history.config.data_root)
    test = load_test_set(config)
    net = _filled(build_net(config, test), path)
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


def _filled(net: Net, path: Path) -> Net:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        net.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        first = str(error).strip().partition("\n")[0]
        raise BadData(f"{path} does not hold this run's model: {first}") from None
    return net.eval()
