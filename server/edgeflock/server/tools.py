"""The tools of a method's server half: a workbench and the public data, made when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from edgeflock.common import datasets
from edgeflock.common.errors import UsageError
from edgeflock.common.models import Net
from edgeflock.common.partition import public
from edgeflock.methods.batches import LocalData
from edgeflock.methods.workbench import Workbench
from edgeflock.server.config import ServerConfig


class ServerTools:
    """Tools of one run."""

    def __init__(self, config: ServerConfig, make_net: Callable[[], Net]) -> None:
        self._config, self._make_net = config, make_net

    def workbench(self) -> Workbench:
        return self._workbench

    def public_data(self) -> LocalData:
        return self._public

    @cached_property
    def _workbench(self) -> Workbench:
        return Workbench(self._make_net(), threads=1)

    @cached_property
    def _public(self) -> LocalData:
        config = self._config
        if config.dataset is None or not config.public_fraction:
            raise UsageError(f"{config.method} needs public data on the server, which holds none")
        dataset = datasets.load(config.dataset, config.data_root)
        part = public(dataset, public_fraction=config.public_fraction, seed=config.seed)
        return LocalData(torch.from_numpy(np.ascontiguousarray(part.x, np.float32)), torch.from_numpy(part.y))
