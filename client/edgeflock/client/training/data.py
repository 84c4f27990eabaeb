"""The data of the hosted clients: their own, or their shards of the run's, and their test samples."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import structlog
import torch

from edgeflock.client.config import EVERY_ROUND, ClientConfig, data_path
from edgeflock.client.protocol import Extent
from edgeflock.client.training.exam import TestSamples
from edgeflock.client.training.lazy import ReadyRoom, on, stock
from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Labels, Part, Scaling
from edgeflock.common.datasets.kit.own import Fit, OwnPart
from edgeflock.common.datasets.kit.stored import Stored, digest
from edgeflock.common.errors import BadData, UsageError
from edgeflock.common.foreign import foreign
from edgeflock.common.partitions.kit.assign import assign, cut, local_test
from edgeflock.common.plugins.loading import is_reference
from edgeflock.common.run import DataDescription, RunDescription
from edgeflock.common.scores import LOCAL, POOLED
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.common.tasks.kit.base import LearningTask
from edgeflock.methods.kit.batches import LocalData, Stock

log = structlog.get_logger()


@dataclass(frozen=True)
class Member:
    """One hosted client as the training sees it: its seat and its data."""

    seat: int
    data: Stock
    class_counts: tuple[int, ...]
    tests: TestSamples = field(default_factory=lambda: TestSamples({}))
    extent: Extent | None = None  # of own data

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
        self._of_source: dict[Path, OwnPart] = {}  # what was read of it last
        self._read_for: dict[str, str] = {}  # the run for which a client's own data were read
        self._last: dict[str, tuple[OwnPart, tuple[str, int], Member]] = {}  # made of own data
        self._pooled: dict[tuple[str, ...], LocalData] = {}  # test samples by data set, once for all clients
        self._pooling = threading.Lock()
        # By what they hold: clients with the same samples (fedadm:3) have them once.
        self._shards: WeakValueDictionary[tuple[str, ...], Shard] = WeakValueDictionary()
        self._sharing = threading.Lock()
        self._room = ReadyRoom()

    def own(self, client_id: str, *, again: bool = False) -> OwnPart | None:
        """Return the client's own data, if it has some; `again`: as they are now.

        Raises MissingData or BadData.
        """
        source = data_path(self._config, client_id)
        if source is None:
            return None
        if client_id not in self._own or again:
            before = self._own.get(client_id) or self._of_source.get(
                source
            )  # clients of one file have it once
            with foreign(f"reading {source}"):
                found = own.load_own(source, client_id, _reading(self._config), before)
            self._own[client_id] = self._of_source[source] = found
        return self._own[client_id]

    def again(self, client_id: str) -> OwnPart | None:
        """Return files that have changed as they are now; a function is not called for it."""
        source = data_path(self._config, client_id)
        return self.own(client_id, again=source is not None and not is_reference(str(source)))

    def check(self, run: RunDescription, client_id: str, *, tokens: bool = False) -> None:
        """Raise BadData if the client's own data are none that the run takes: before a seat is waited for."""
        if client_id in self._own:
            taken = DataTerms.of(run, tokens)
            taken.check_names(self._own[client_id])
            for part in self._own[client_id].parts:
                taken.fit(part)

    def member(
        self,
        run: RunDescription,
        client_id: str,
        seat: int,
        round: int = 0,
        begun: Extent | None = None,
        *,
        tokens: bool = False,
    ) -> Member:
        """Return the client in its seat with its data: its own, or its shard of the run's data set.

        Own data are asked for again for another run than before, and for a round. A round, or a run, that a
        process before this has begun goes on with the data that it was begun with, if they are there.
        `tokens`: the model takes whole numbers.
        """
        taken = DataTerms.of(run, tokens)
        if client_id in self._own:
            known = self._read_for.setdefault(client_id, run.run_id)
            self.own(client_id, again=bool(round) or known != run.run_id)
            self._read_for[client_id] = run.run_id
            return self._of_round(taken, client_id, seat, round, begun)
        if run.data is None:
            raise UsageError("this run needs data of your own: name yours with --data")
        shard = self._shard(taken, run.data, seat)
        if len(shard.part) and shard.part.input_shape != run.model.input_shape:
            found = f"{run.data.dataset} has samples of {shard.part.input_shape}"
            raise BadData(f"{found}, this run needs {run.model.input_shape}")
        tests = self._tests(taken, seat, run.data, shard)
        return Member(seat, shard.data, taken.counts([shard.part.y]), tests)

    def _of_round(
        self, taken: DataTerms, client_id: str, seat: int, round: int, begun: Extent | None
    ) -> Member:
        """Return the client with its own data; what has not changed is not made again."""
        mine, key = self._own[client_id], (taken.run.run_id, seat)
        last = self._last.get(client_id)
        if begun is not None:
            return self._with_own(taken, _as_begun(mine, begun), seat, round)
        if last is None or last[0] is not mine or last[1] != key:
            self._last.pop(client_id, None)  # its room is for what comes in its place
            last = self._last[client_id] = mine, key, self._with_own(taken, mine, seat, round)
        made = last[2]
        return replace(made, extent=made.extent and replace(made.extent, round=round))

    def _with_own(self, taken: DataTerms, mine: OwnPart, seat: int, round: int) -> Member:
        taken.check_names(mine)
        numbers = own.how(mine.train, taken.scaling, taken.task, tokens=taken.tokens)
        log.info("data_read", source=mine.train.where, numbers=numbers)
        extent = Extent(round, len(mine.train), digest(mine.train))
        mine = own.held_out(mine, self._config.hold_out, taken.run.seed, seat)
        data = self._stock(mine.train, taken)
        tests = TestSamples(
            {LOCAL: lambda: self._own_test(taken, mine), POOLED: lambda: self._pooled_test(taken)}
        )
        return Member(seat, data, taken.counts(mine.train.labels()), tests, extent)

    def _own_test(self, taken: DataTerms, mine: OwnPart) -> Stock | None:
        return None if mine.test is None else self._stock(mine.test, taken)

    def _stock(self, stored: Stored, taken: DataTerms) -> Stock:
        return stock(stored, taken.fit(stored), self._device, self._room)

    def _tests(self, taken: DataTerms, seat: int, spec: DataDescription, shard: Shard) -> TestSamples:
        """Return what the client's own model is tested on: most runs never ask for it."""

        def local() -> Stock:
            dataset = datasets.load(spec.dataset, self._config.data_root)
            return self._tensors(taken, local_test(dataset, shard.part, seed=spec.seed, index=seat))

        return TestSamples({LOCAL: local, POOLED: lambda: self._pooled_test(taken)})

    def _pooled_test(self, taken: DataTerms) -> LocalData | None:
        """Return the test samples of the run's data set, the same tensors for every client."""
        data, model = taken.run.data, taken.run.model
        if data is None:
            return None
        with self._pooling:
            key = (data.dataset, *taken.key)
            if key not in self._pooled:
                dataset = datasets.load(data.dataset, self._config.data_root)
                part = own.check(dataset.ready(dataset.test), model.input_shape, taken.task, taken.scaling)
                self._pooled[key] = self._tensors(taken, part)
            return self._pooled[key]

    def _shard(self, taken: DataTerms, spec: DataDescription, seat: int) -> Shard:
        """Return what the seat has; another's with the same samples, while somebody has it."""
        dataset, how = datasets.load(spec.dataset, self._config.data_root), _cutting(spec)
        if not 0 <= seat < spec.shards:
            return self._made(taken, cut(dataset, **how, index=seat))  # which refuses it
        rows = assign(dataset, **how)[seat]
        key = (spec.dataset, *taken.key, hashlib.sha256(rows.tobytes()).hexdigest())
        found = self._shards.get(key) or self._made(taken, cut(dataset, **how, index=seat))
        with self._sharing:
            return self._shards.setdefault(key, found)

    def _made(self, taken: DataTerms, part: Part) -> Shard:
        return Shard(part, self._tensors(taken, part))

    def _tensors(self, taken: DataTerms, part: Part) -> LocalData:
        return LocalData(*on(self._device, *taken.task.tensors(part.x, part.y, tokens=taken.tokens)))


@dataclass(frozen=True)
class DataTerms:
    """A run as it takes data."""

    run: RunDescription
    task: LearningTask
    tokens: bool  # its model takes whole numbers

    @classmethod
    def of(cls, run: RunDescription, tokens: bool) -> DataTerms:
        return cls(run, tasks.load(run.model.task)(run.model.classes), tokens)

    def check_names(self, mine: OwnPart) -> None:
        """Raise BadData if its labels may be of other classes elsewhere."""
        if self.task.classes:
            own.check_names(mine, self.task.outputs)

    @property
    def key(self) -> tuple[str, ...]:
        """What tells apart what runs make of the same data."""
        return self.run.model.task, str(self.tokens)

    @property
    def scaling(self) -> Scaling:
        """What own data in bytes become: what those of the run's data set do."""
        return datasets.scaling(self.run.data.dataset if self.run.data else None)

    def fit(self, stored: Stored) -> Fit:
        """Return what makes own data what the run expects. Raises BadData."""
        return own.fits(stored, self.run.model.input_shape, self.task, self.scaling, tokens=self.tokens)

    def counts(self, labels: Iterable[Labels]) -> tuple[int, ...]:
        """Return how many samples there are of each class, nothing where there are none."""
        if not self.task.classes:
            return ()
        found = np.zeros(self.task.outputs, np.int64)
        for y in labels:
            found += np.bincount(y.reshape(-1), minlength=self.task.outputs)
        return tuple(map(int, found))


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
    return own.Reading(config.size, config.label, config.columns, growing=config.refresh == EVERY_ROUND)


def _as_begun(mine: OwnPart, begun: Extent) -> OwnPart:
    """Return the data with which a process before has begun; if they are gone, say so."""
    found = own.as_far_as(mine, begun.samples, begun.digest)
    if found is None:
        what = f"round {begun.round}" if begun.round else "the run"
        log.warning("data_changed", begun=what, samples_then=begun.samples, samples_now=len(mine.train))
        return mine
    return found
