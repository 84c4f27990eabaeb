"""What a FedADM client keeps from round to round: its anchor, and the batch its next round begins with.

Anchors have the number of the round that broadcast them; `best_round` in the plan says which one is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from edgeflock.methods.kit.base import Batch, Kind, Local

USES = 3  # of one batch while tau is 1


def lacks_anchor(kept: Mapping[str, float], flags: Mapping[str, float]) -> bool:
    """Whether neither the anchor nor the last w received is the one that is meant."""
    return flags.get("best_round") not in (kept.get("anchor_round"), kept.get("received_round"))


def anchor_of(work: Local) -> Tensor:
    """Return w_best: what was received now, what is kept, or what was fetched beside."""
    best = work.plan.flags.get("best_round", float(work.round))
    if best == work.round:
        return work.received[Kind.MODEL]
    for name in ("anchor", "received"):
        if work.state.scalars.get(f"{name}_round") == best:
            return work.state.vectors[name]
    return work.received[Kind.ANCHOR]


def keep_anchor(work: Local, anchor: Tensor) -> None:
    """Keep the w received and, where it is another, the anchor."""
    received, kept = work.received[Kind.MODEL], work.new_state
    if anchor is received:
        kept.vectors.pop("anchor", None)
        kept.scalars.pop("anchor_round", None)
    else:
        kept.scalars["anchor_round"] = work.plan.flags["best_round"]
        if anchor is not work.state.vectors.get("anchor"):
            work.keep("anchor", anchor)
    work.keep("received", received)
    kept.scalars["received_round"] = float(work.round)


def share_order(work: Local) -> None:
    """Step through the batches of seat 0, as everybody does: the same samples where the data are the same."""
    work.order = replace(work.order, seat=0)


def last_batch(work: Local) -> Batch | None:
    """Return the last batch of the round before, or nothing if there is none or it has served enough."""
    kept = work.state.scalars
    if "batch_round" not in kept or (work.steps_total == 1 and kept["batch_uses"] >= USES):
        return None
    return work.batch_in(int(kept["batch_round"]), int(kept["batch_step"]))


def keep_batch(work: Local) -> None:
    """Note which batch the next round begins with."""
    kept = work.new_state.scalars
    if work.first_batch is not None and work.steps_done == 1:
        kept["batch_uses"] += 1
        return
    kept |= {"batch_round": float(work.round), "batch_step": work.steps_done - 1.0, "batch_uses": 1.0}
