"""The values that hooks receive and return: setting, plan, state, round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from edgeflock.common.payload.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Setting:
    """What both halves know of the run from its start to its end."""

    layout: Layout  # of the model's parameters
    classes: int
    features: int  # length of one sample's feature vector
    clients: int  # N: seats of the roster
    seed: int
    head: tuple[str, ...] = ()  # names of the head's parameters; all others are the body
    budgets: Mapping[str, float] = field(default_factory=dict)  # limits by resource; the server's half only
    parted: bool = False  # whether clients keep parameters as their own: there is no whole global model
    tested: bool = False  # whether clients test their own models; the server's half only


@dataclass(frozen=True)
class Outlook:
    """What is known of a run's rounds before it begins, for a method's word of caution."""

    lr: float
    partial: bool  # whether rounds ask a part of the clients
    steps: float | None = None  # of a client in a round, the mean over clients; None: not known
    epochs: int | None = 1  # of a round; None: it is told in steps
    momentum: float = 0.0  # of the clients' steps


@dataclass(frozen=True)
class Plan:
    """S1: the work of one round. `steps` wins over `epochs`."""

    lr: float
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 32
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0
    flags: Mapping[str, float] = field(default_factory=dict)  # the method's own numbers for the clients
    stop: str = ""  # a sentence: end the run instead of opening this round
    steered: bool = False  # the method itself sees to the budgets of time and CPU

    def with_flags(self, **flags: float) -> Plan:
        return replace(self, flags={**self.flags, **flags})


@dataclass
class State:
    """Server state or client state of a method: named flat tensors and scalars, saved by the engine."""

    vectors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)

    @property
    def model(self) -> Tensor:
        """w, the global parameters (server state only)."""
        return self.vectors["model"]


@dataclass(frozen=True)
class Round:
    """What a server hook knows of the round at hand."""

    number: int  # from 1
    lr: float
    cohort: tuple[int, ...]  # roster indices, ascending
    samples: Mapping[int, int]  # n_i of all who were ready when it was opened, by seat: N and n
    plan: Plan | None = None  # S1's, for S0
    prepared: State | None = None  # what S0 returned
    closing: bool = False  # the closing task, which is no round of training
    costs: Mapping[str, float] = field(default_factory=dict)  # measured so far: seconds, bytes
