"""Client scores: how a client's own model does on its local test split and on the pooled test set."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL, POOLED = "client_local", "client_pooled"

WISHES = {"off": (), "local": (LOCAL,), "both": (LOCAL, POOLED)}  # what an operator or a method asks for


@dataclass(frozen=True)
class ClientScore:
    """One client's own model on one set of test samples."""

    model: str  # LOCAL or POOLED
    samples: int
    hits: int
    loss: float  # mean over the samples
