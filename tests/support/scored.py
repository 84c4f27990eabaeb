"""How tests score models that nobody says more of: a run of classes, judged by its accuracy."""

from __future__ import annotations

from edgeflock.common.scores import ACCURACY
from edgeflock.common.tasks.kit.marking import Marking
from edgeflock.common.tasks.kit.registry import load

MARKING = Marking(load("classification")(0), ACCURACY)
