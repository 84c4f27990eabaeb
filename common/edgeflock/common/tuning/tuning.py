"""What a run asks of training beside its method, as text: the same at both ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Each in the one way in which it is written; empty is what a run does that says nothing."""

    optimizer: str = ""  # of the clients' steps: adamw:...
    adapter: str = ""  # beside frozen layers: lora:rank=4,...
    keep_local: str = ""  # patterns of parameters and buffers that every client keeps as its own
    train: str = ""  # patterns of the parameters that are trained; empty: as the model says, by default all


NOTHING = Tuning()
