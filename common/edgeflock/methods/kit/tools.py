"""What a method's server half may compute with: a workbench of its own and the data that the server holds."""

from __future__ import annotations

from typing import Protocol

from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.workbench import Workbench


class Tools(Protocol):
    """Made when they are first asked for; most methods never do."""

    def workbench(self) -> Workbench:
        """Return a model with its buffers, for training or testing on the server."""
        ...

    def public_data(self) -> LocalData:
        """Return the training samples that the server holds; raises UsageError if it holds none."""
        ...

    def score_data(self) -> LocalData:
        """Return the samples on which the server scores updates; none of them is in `public_data`."""
        ...
