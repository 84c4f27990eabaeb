"""The tools of a method's server half: a workbench and data, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import structlog
import torch
from torch import Tensor

from edgeflock.common import seeds
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Part
from edgeflock.common.datasets.kit.own import check, how, load_part
from edgeflock.common.errors import BadData, UsageError
from edgeflock.common.partitions.kit.assign import public
from edgeflock.common.tasks.classification import TASK
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig

log = structlog.get_logger()

HELD_OUT = 0.1  # of the public data, for scores, where there are no others


class ServerTools:
    """Tools of one run; `test` are the server's test samples, as a model of the run is given them."""

    def __init__(
        self, config: ServerConfig, make_bench: Callable[[], Workbench], test: LocalData, classes: int
    ) -> None:
        self._config, self._make_bench = config, make_bench
        self._test, self._classes = test, classes

    def workbench(self) -> Workbench:
        return self._workbench

    def public_data(self) -> LocalData:
        return self._parts[0]

    def score_data(self) -> LocalData:
        return self._parts[1]

    @cached_property
    def _workbench(self) -> Workbench:
        return self._make_bench()

    @cached_property
    def _parts(self) -> tuple[LocalData, LocalData]:
        """What is trained on and what is scored on; raises UsageError or MissingData with a sentence."""
        config, held = self._config, self._public()
        if config.set.get("score_set") == "test":
            return held, self._test
        if config.score_data is not None:
            return held, self._file("--score-data", config.score_data)
        if len(held) < 2:
            raise UsageError(
                f"{config.method} trains on one part of the public data and scores on another: "
                f"of {len(held)} samples none can be held out, give more, or --score-data"
            )
        return _held_out(held, config.seed)

    def _public(self) -> LocalData:
        config = self._config
        if config.public_data is not None:
            return self._file("--public-data", config.public_data)
        share = config.public_fraction or config.public_from_shards
        if config.dataset is None or not share:
            raise UsageError(f"{config.method} needs public data on the server, which holds none")
        dataset = datasets.load(config.dataset, config.data_root)
        return _tensors(public(dataset, public_fraction=share, seed=config.seed))

    def _file(self, flag: str, path: Path) -> LocalData:
        """Read samples in the run's shape; raises BadData that names the flag."""
        scaling = datasets.scaling(self._config.dataset)
        try:
            own, task = load_part(path), TASK(self._classes)
            log.info("data_read", flag=flag, file=str(path), numbers=how(own, scaling, task))
            return _tensors(check(own, tuple(self._test.x.shape[1:]), task, scaling))
        except BadData as error:
            raise BadData(f"{flag} {str(path)!r}: {error}") from None


def _held_out(held: LocalData, seed: int) -> tuple[LocalData, LocalData]:
    order = seeds.numpy_generator(seed, "public", "score").permutation(len(held))
    scored = max(1, int(HELD_OUT * len(held) + 0.5))
    return _rows(held, order[scored:]), _rows(held, order[:scored])


def _rows(data: LocalData, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LocalData:
    seat: Tensor = torch.from_numpy(np.sort(rows))
    return LocalData(data.x[seat], data.y[seat])


def _tensors(part: Part) -> LocalData:
    return LocalData(torch.from_numpy(np.ascontiguousarray(part.x, np.float32)), torch.from_numpy(part.y))
