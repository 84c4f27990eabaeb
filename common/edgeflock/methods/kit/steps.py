"""The step loop: a client half applied to its batches, one local round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.base import Bundles, ClientHalf
from edgeflock.methods.kit.local import Local

Hook = Callable[[Local], None]


def run(half: ClientHalf[Any], work: Local, proceed: Callable[[], bool] | None = None) -> Bundles:
    """Train one local round and return the update's bundles; valid until the workbench's next round.

    `proceed` is asked before every step; False ends the round early (an allowance is used up).
    A round without a step returns delta 0 alone, and no hook is called: other bundles count as zero,
    the candidate state is the old one.
    """
    if work.steps_total == 0 or (proceed is not None and not proceed()):
        return {Kind.DELTA: work.delta()}
    if overrides(half, "loss"):
        work.term = lambda batch, features, logits: half.loss(work, batch, features, logits)
    half.begin(work)
    _steps(half, work, proceed)
    work.model.settle()
    work.keep_own()
    return half.end(work)


def overrides(half: ClientHalf[Any], hook: str) -> bool:
    """Whether a method brings its own hook; the defaults that do nothing are not called."""
    return getattr(type(half), hook) is not getattr(ClientHalf, hook)


def _steps(half: ClientHalf[Any], work: Local, proceed: Callable[[], bool] | None) -> None:
    """Order inside a step: backward -> gradient -> weight decay -> clip -> step -> after_step."""
    gradient, after_step = _own(half, "gradient"), _own(half, "after_step")
    step, decay, clip = _step(half, work), _decay(work), work.plan.clip
    own = work.own_steps()
    for batch in work.batches():
        if proceed is not None and work.steps_done and not proceed():
            break
        loss = half.backward(work, batch)
        if gradient is not None:
            gradient(work)
        if decay:
            work.grads.add_(work.params, alpha=decay)
        if clip:
            work.clip(clip)
        step(work)
        if own is not None:
            own()
        if after_step is not None:
            after_step(work)
        work.count(loss, batch)


def _step(half: ClientHalf[Any], work: Local) -> Hook:
    """Return the update rule: the method's, unless the run has another than SGD."""
    if not work.bench.optimizer.adaptive:
        return half.step
    moments = work.bench.adamw()
    return lambda work: moments.step(work.params, work.grads, lr=work.lr, decay=work.plan.weight_decay)


def _decay(work: Local) -> float:
    """Return the weight decay that is part of the direction; AdamW's is none."""
    return 0.0 if work.bench.optimizer.adaptive else work.plan.weight_decay


def _own(half: ClientHalf[Any], hook: str) -> Hook | None:
    found: Hook = getattr(half, hook)
    return found if overrides(half, hook) else None
