"""firenet: what firenet-jadon was called before there were two; the other one is firenet-dunnings."""

from __future__ import annotations

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.shapes import Shape


def make(shape: Shape, classes: int) -> Net:
    from edgeflock.common.models.firenet_jadon import FireNet

    return FireNet(shape, classes)
