"""The trainer of a process: worker threads, training slots, the data of the hosted clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
import structlog
import torch

from edgeflock.client.config import ClientConfig, data_path
from edgeflock.client.training import device, setup
from edgeflock.client.training.bench import Bench, Member
from edgeflock.client.training.exam import TestSamples
from edgeflock.client.training.gauge import Gauge
from edgeflock.client.training.setup import Setup
from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Part
from edgeflock.common.errors import BadData, UsageError
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.registry import build_net
from edgeflock.common.partitions.kit.assign import cut, local_test
from edgeflock.common.run import DataDescription, RunDescription
from edgeflock.common.scores import LOCAL, POOLED
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.v1 import aggregator_pb2 as pb

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class _RunAtHand:
    """What the process keeps of the run that it is in."""

    setup: Setup
    free: list[Bench]


class Trainer:
    """Everything torch in this process, shared by its clients."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._device = device.choose(config.device)
        self.description = device.describe(self._device, config)
        self.gauge = Gauge(watts=config.watts, slots=config.parallel)
        if config.threads != 1:
            log.warning("threads_change_bits", threads=config.threads)
        torch.set_num_threads(config.threads)
        # One thread more than slots: small work does not wait for a training.
        self._threads = ThreadPoolExecutor(
            config.parallel + 1, "work", initializer=torch.set_num_threads, initargs=(config.threads,)
        )
        self._slots = asyncio.Semaphore(config.parallel)
        self._place: _RunAtHand | None = None
        self._placing = threading.Lock()
        self._own: dict[str, own.OwnPart] = {}
        self._pooled: dict[str, LocalData] = {}  # test samples by data set, once for all clients
        self._pooling = threading.Lock()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run in a worker thread. When cancelled, wait for it: what it holds is in use until it ends."""
        future = self._threads.submit(work, *args, **kwargs)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():  # it runs, or has just ended
                await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)
            raise

    def forget_gpu_peak(self) -> None:
        """Begin to watch how much memory of the GPU is in use."""
        device.forget_peak(self._device)

    def gpu_peak_bytes(self) -> int | None:
        """Return the highest since then; None without a GPU that tells."""
        return device.peak_bytes(self._device)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -------------------------------------------------------------------------------- the run

    def setup(self, run: RunDescription) -> Setup:
        """Return this process's setup of the run, built once; raises an EdgeflockError if it does not fit."""
        with self._placing:
            if self._place is None or self._place.setup.run_id != run.run_id:
                net = self._net(run)
                work = self._workbench(net)
                self._place = _RunAtHand(setup.make(run, net, work.model.layouts), [Bench(work)])
            return self._place.setup

    @asynccontextmanager
    async def bench(self, wanted: Setup) -> AsyncIterator[Bench]:
        """Wait for a training slot and use it."""
        async with self._slots:
            place = self._place
            if place is None or place.setup is not wanted:
                raise BadData(f"run {wanted.run_id} is not the one that this process is in any more")
            bench = place.free.pop() if place.free else await self.run(self._another, wanted)
            try:
                yield bench
            finally:
                place.free.append(bench)

    def _another(self, wanted: Setup) -> Bench:
        return Bench(self._workbench(self._net(wanted.run)))

    def _net(self, run: RunDescription) -> Net:
        return build_net(run.model, run.seed, self._config.model)

    def _workbench(self, net: Net) -> Workbench:
        return Workbench(net, self._device, threads=self._config.threads)

    # -------------------------------------------------------------------------------- data

    def own_data(self, client_id: str) -> pb.OwnData | None:
        """Return what the server is told about the client's own data; raises MissingData or BadData."""
        path = data_path(self._config, client_id)
        if path is None:
            return None
        if client_id not in self._own:
            self._own[client_id] = own.load_own(path)
        mine = self._own[client_id]
        return pb.OwnData(
            samples=len(mine.train), input_shape=mine.input_shape, highest_label=mine.highest_label
        )

    def member(self, wanted: Setup, client_id: str, index: int) -> Member:
        """Return the client in its seat with its data: its own, or its shard of the run's data set."""
        run = wanted.run
        if client_id in self._own:
            part = own.check(self._own[client_id].train, wanted.run.model.input_shape, run.model.classes)
        elif run.data is not None:
            part = self._shard(run.data, index)
            if len(part) and part.input_shape != wanted.run.model.input_shape:
                found = f"{run.data.dataset} has samples of {part.input_shape}"
                raise BadData(f"{found}, this run needs {wanted.run.model.input_shape}")
        else:
            raise UsageError("this run needs data of your own: name yours with --data")
        counts = np.bincount(part.y, minlength=run.model.classes)
        return Member(
            index, self._tensors(part), tuple(map(int, counts)), self._tests(wanted, client_id, index, part)
        )

    def _tests(self, wanted: Setup, client_id: str, index: int, part: Part) -> TestSamples:
        """Return what the client's own model is tested on: most runs never ask for it."""
        run, mine = wanted.run, self._own.get(client_id)

        def local() -> LocalData | None:
            if mine is not None:
                if mine.test is None:
                    return None
                return self._tensors(own.check(mine.test, wanted.run.model.input_shape, run.model.classes))
            if run.data is None:
                return None
            dataset = datasets.load(run.data.dataset, self._config.data_root)
            return self._tensors(local_test(dataset, part, seed=run.data.seed, index=index))

        return TestSamples({LOCAL: local, POOLED: lambda: self._pooled_test(wanted)})

    def _pooled_test(self, wanted: Setup) -> LocalData | None:
        """Return the test samples of the run's data set, the same tensors for every client."""
        run = wanted.run
        if run.data is None:
            return None
        with self._pooling:
            if run.data.dataset not in self._pooled:
                dataset = datasets.load(run.data.dataset, self._config.data_root)
                test = own.check(dataset.ready(dataset.test), wanted.run.model.input_shape, run.model.classes)
                self._pooled[run.data.dataset] = self._tensors(test)
            return self._pooled[run.data.dataset]

    def _shard(self, spec: DataDescription, index: int) -> Part:
        return cut(
            datasets.load(spec.dataset, self._config.data_root),
            partition=spec.partition,
            seed=spec.seed,
            shards=spec.shards,
            samples_per_client=spec.samples_per_client,
            public_fraction=spec.public_fraction,
            index=index,
        )

    def _tensors(self, part: Part) -> LocalData:
        x, y = torch.from_numpy(np.ascontiguousarray(part.x, np.float32)), torch.from_numpy(part.y)
        return LocalData(x.to(self._device), y.to(self._device))
