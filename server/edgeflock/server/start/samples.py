"""What the server knows of the data: what a sample looks like, its own test samples, and who holds what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Part, Scaling, count_classes
from edgeflock.common.datasets.kit.own import Reading, check, how, load_tests
from edgeflock.common.errors import BadData, BadValue
from edgeflock.common.models.kit.base import Net
from edgeflock.common.partitions.kit.assign import assign
from edgeflock.common.partitions.kit.base import Indices
from edgeflock.common.partitions.kit.coverage import Coverage, coverage
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.common.tasks.kit.base import LearningTask
from edgeflock.methods.kit.batches import LocalData
from edgeflock.server.config import ServerConfig


@dataclass(frozen=True)
class TestSet:
    """What the server knows of the data: the shape of a sample, the classes, and its own test samples."""

    __test__ = False  # not a pytest class

    input_shape: tuple[int, ...]
    classes: int  # or numbers that the model gives
    x: Tensor  # none at all, where the server has no data
    y: Tensor
    numbers: str = ""  # of a file: what becomes of them, in words

    def data(self, net: Net) -> LocalData:
        """Return the samples as a model is given them."""
        if not len(self.y):
            return LocalData(self.x, self.y)
        return LocalData.of(net, self.x.numpy(), self.y.numpy())


def load_test_set(config: ServerConfig) -> TestSet:
    """Read the server's test samples. Raises MissingData or BadData with a sentence."""
    if config.dataset is not None:
        return _of_dataset(config, config.dataset)
    if config.eval_data is not None:
        part = _eval_data(config, config.eval_data)
        return _of_part(config, part, part.input_shape, 0, Scaling(), config.eval_data)
    assert config.input_shape is not None  # resolve has seen to it
    shape = tuple(map(int, config.input_shape.split("x")))
    return TestSet(shape, config.classes, torch.zeros(0, *shape), torch.zeros(0))


def _of_dataset(config: ServerConfig, name: str) -> TestSet:
    dataset = datasets.load(name, config.data_root)
    shards(config)  # a cut that cannot be made is refused before the clients come
    if config.eval_data is None:
        part = dataset.ready(dataset.test)
        return _of_part(config, part, dataset.input_shape, dataset.classes, dataset.scaling)
    part = _eval_data(config, config.eval_data)
    return _of_part(config, part, dataset.input_shape, dataset.classes, dataset.scaling, config.eval_data)


def _eval_data(config: ServerConfig, path: Path) -> Part:
    return load_tests(path, Reading(config.size, config.label, config.columns), config.classes)


def _of_part(
    config: ServerConfig,
    part: Part,
    shape: tuple[int, ...],
    classes: int,
    scaling: Scaling,
    file: Path | None = None,
) -> TestSet:
    """Return test samples, as the task takes them; `classes` are those of the data set, 0 without one."""
    try:
        found = _outputs(config, part, classes)
        task = tasks.load(config.task)(found)
        numbers = how(part, scaling, task) if file is not None else ""
        ready = check(part, shape, task, scaling)
    except BadData as error:
        raise BadData(f"{file}: {error}" if file else str(error)) from None
    y = torch.from_numpy(np.ascontiguousarray(ready.y))
    return TestSet(shape, found, torch.from_numpy(ready.x), y, numbers)


def _outputs(config: ServerConfig, part: Part, classes: int) -> int:
    """Return how many numbers the model is to give: as the data say, or as the operator does."""
    task: LearningTask = tasks.load(config.task)(0)
    shown = max(classes, task.count(part.x, part.y)) if task.classes else task.count(part.x, part.y)
    if task.classes:
        count_classes("the labels", shown - 1)
    if config.classes and config.classes < shown:
        raise BadValue("--classes", config.classes, f"at least {shown}, which the data show")
    return config.classes or shown


def shards(config: ServerConfig) -> tuple[Indices, ...]:
    """Cut the run's data set as the clients will. Raises MissingData, BadData or BadValue with a sentence."""
    assert config.dataset is not None
    return assign(
        datasets.load(config.dataset, config.data_root),
        partition=config.partition,
        seed=config.seed,
        shards=config.clients,
        samples_per_client=config.samples_per_client,
        public_fraction=config.public_fraction,
        public_from_shards=config.public_from_shards,
    )


def classes_held(config: ServerConfig) -> Coverage | None:
    """Return which classes the shards cover, where that is worth a word."""
    if config.dataset is None or not tasks.load(config.task).classes:
        return None
    labels = datasets.load(config.dataset, config.data_root).train.y
    found = coverage(labels, shards(config))
    return found if found.is_told(config.partition) else None
