"""A refusal as a value of the run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from edgeflock.common.reason import Reason


@dataclass(frozen=True)
class Refused:
    """Something is not done, and this is why; `sentence` is for people."""

    reason: Reason
    sentence: str
    retry_after_ms: int = 0
