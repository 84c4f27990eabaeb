"""How tests score models that nobody says more of: a run of classes, judged by its accuracy."""

from __future__ import annotations

from edgeflock.common.scores import ACCURACY
from edgeflock.common.tasks.classification import TASK
from edgeflock.common.tasks.kit.marking import Marking

MARKING = Marking(TASK(0), ACCURACY)
