"""The data of the hosted clients: their own, or their shards of the run's, and their test samples."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import structlog
import torch

from edgeflock.client.config import ClientConfig, data_path
from edgeflock.client.training.exam import TestSamples
from edgeflock.client.training.lazy import stock, tensors
from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Labels, Part, Scaling
from edgeflock.common.datasets.kit.own import OwnPart
from edgeflock.common.datasets.kit.stored import Stored
from edgeflock.common.errors import BadData, UsageError
from edgeflock.common.foreign import foreign
from edgeflock.common.partitions.kit.assign import assign, cut, local_test
from edgeflock.common.run import DataDescription, RunDescription
from edgeflock.common.scores import LOCAL, POOLED
from edgeflock.methods.kit.batches import LocalData, Stock

log = structlog.get_logger()


@dataclass(frozen=True)
class Member:
    """One hosted client as the training sees it: its seat and its data."""

    seat: int
    data: Stock
    class_counts: tuple[int, ...]
    tests: TestSamples = field(default_factory=lambda: TestSamples({}))

    @property
    def samples(self) -> int:
        return len(self.data)


@dataclass(frozen=True, eq=False)
class Shard:
    """A client's training samples, as they are read and as they are trained on: one memory on a CPU."""

    part: Part
    data: LocalData


class HostedData:
    """What the clients of a process have, read when it is first asked for. All calls from worker threads."""

    def __init__(self, config: ClientConfig, device: torch.device) -> None:
        self._config, self._device = config, device
        self._own: dict[str, OwnPart] = {}
        self._pooled: dict[str, LocalData] = {}  # test samples by data set, once for all clients
        self._pooling = threading.Lock()
        # By what they hold: clients with the same samples (fedadm:3) have them once.
        self._shards: WeakValueDictionary[tuple[str, bytes], Shard] = WeakValueDictionary()
        self._sharing = threading.Lock()

    def own(self, client_id: str) -> OwnPart | None:
        """Return the client's own data, if it has some; raises MissingData or BadData."""
        source = data_path(self._config, client_id)
        if source is None:
            return None
        if client_id not in self._own:
            with foreign(f"reading {source}"):
                found = own.load_own(source, client_id, _reading(self._config))
                self._own[client_id] = own.classes_only(found)
        return self._own[client_id]

    def member(self, run: RunDescription, client_id: str, seat: int) -> Member:
        """Return the client in its seat with its data: its own, or its shard of the run's data set."""
        if client_id in self._own:
            return self._with_own(run, self._own[client_id], seat)
        if run.data is None:
            raise UsageError("this run needs data of your own: name yours with --data")
        shard = self._shard(run.data, seat)
        if len(shard.part) and shard.part.input_shape != run.model.input_shape:
            found = f"{run.data.dataset} has samples of {shard.part.input_shape}"
            raise BadData(f"{found}, this run needs {run.model.input_shape}")
        tests = self._tests(run, seat, run.data, shard)
        return Member(seat, shard.data, _counts(run, [shard.part.y]), tests)

    def _with_own(self, run: RunDescription, mine: OwnPart, seat: int) -> Member:
        scaling = _scaling(run)
        own.check_names(mine, run.model.classes)
        log.info("data_read", source=mine.train.where, numbers=own.how(mine.train, scaling))
        data = self._stock(mine.train, run)
        tests = TestSamples(
            {LOCAL: lambda: self._own_test(run, mine), POOLED: lambda: self._pooled_test(run)}
        )
        return Member(seat, data, _counts(run, mine.train.labels()), tests)

    def _own_test(self, run: RunDescription, mine: OwnPart) -> Stock | None:
        return None if mine.test is None else self._stock(mine.test, run)

    def _stock(self, stored: Stored, run: RunDescription) -> Stock:
        fit = own.fits(stored, run.model.input_shape, run.model.classes, _scaling(run))
        return stock(stored, fit, self._device)

    def _tests(self, run: RunDescription, seat: int, spec: DataDescription, shard: Shard) -> TestSamples:
        """Return what the client's own model is tested on: most runs never ask for it."""

        def local() -> Stock:
            dataset = datasets.load(spec.dataset, self._config.data_root)
            return self._tensors(local_test(dataset, shard.part, seed=spec.seed, index=seat))

        return TestSamples({LOCAL: local, POOLED: lambda: self._pooled_test(run)})

    def _pooled_test(self, run: RunDescription) -> LocalData | None:
        """Return the test samples of the run's data set, the same tensors for every client."""
        if run.data is None:
            return None
        with self._pooling:
            if run.data.dataset not in self._pooled:
                dataset = datasets.load(run.data.dataset, self._config.data_root)
                self._pooled[run.data.dataset] = self._tensors(
                    self._fitting(dataset.ready(dataset.test), run)
                )
            return self._pooled[run.data.dataset]

    def _fitting(self, part: Part, run: RunDescription) -> Part:
        return own.check(part, run.model.input_shape, run.model.classes, _scaling(run))

    def _shard(self, spec: DataDescription, seat: int) -> Shard:
        """Return what the seat has; another's with the same samples, while somebody has it."""
        dataset, how = datasets.load(spec.dataset, self._config.data_root), _cutting(spec)
        if not 0 <= seat < spec.shards:
            return self._made(cut(dataset, **how, index=seat))  # which refuses it
        rows = assign(dataset, **how)[seat]
        key = spec.dataset, hashlib.sha256(rows.tobytes()).digest()
        found = self._shards.get(key) or self._made(cut(dataset, **how, index=seat))
        with self._sharing:
            return self._shards.setdefault(key, found)

    def _made(self, part: Part) -> Shard:
        return Shard(part, self._tensors(part))

    def _tensors(self, part: Part) -> LocalData:
        return LocalData(*tensors(part, self._device))


def _cutting(spec: DataDescription) -> dict[str, Any]:
    """Return how a data set is cut into shards."""
    return {
        "partition": spec.partition,
        "seed": spec.seed,
        "shards": spec.shards,
        "samples_per_client": spec.samples_per_client,
        "public_fraction": spec.public_fraction,
        "public_from_shards": spec.public_from_shards,
    }


def _reading(config: ClientConfig) -> own.Reading:
    return own.Reading(config.size, config.label, config.columns)


def _counts(run: RunDescription, labels: Iterable[Labels]) -> tuple[int, ...]:
    """Return how many samples there are of each class."""
    found = np.zeros(run.model.classes, np.int64)
    for y in labels:
        found += np.bincount(y.reshape(-1), minlength=run.model.classes)
    return tuple(map(int, found))


def _scaling(run: RunDescription) -> Scaling:
    """Return what own data in bytes become: what those of the run's data set do."""
    return datasets.scaling(run.data.dataset if run.data else None)
