"""The clients' steps: SGD as the method has it, or AdamW, whose moments begin anew in every round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeflock.common.errors import BadValue
from edgeflock.common.tuning import phrase

if TYPE_CHECKING:
    from torch import Tensor

FLAG = "--client-optimizer"
WORDS = "sgd or adamw, such as adamw:beta1=0.9,beta2=0.999,eps=1e-8 with betas in [0, 1) and eps > 0"
ADAMW_LR = 1e-3  # where nothing is said
_SGD, _ADAMW = "sgd", "adamw"


@dataclass(frozen=True)
class Optimizer:
    """How a client steps along its direction; `str()` gives the text that `parse` understands."""

    adaptive: bool = False  # AdamW; else whatever the method does with the run's SGD
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __str__(self) -> str:
        numbers = f"beta1={self.beta1:g},beta2={self.beta2:g},eps={self.eps:g}"
        return f"{_ADAMW}:{numbers}" if self.adaptive else _SGD

    @property
    def operations(self) -> int:
        """Operations on every trained number in each step, beside those of SGD."""
        return 13 if self.adaptive else 0


SGD = Optimizer()


def parse(text: str) -> Optimizer:
    """Return what an operator writes, or what `str()` has written; nothing is SGD. Raises BadValue."""
    word, given = phrase.split(FLAG, text or _SGD, WORDS)
    if word not in (_SGD, _ADAMW) or (word == _SGD and given):
        raise BadValue(FLAG, text, WORDS)
    found = phrase.filled(FLAG, text, WORDS, Optimizer(word == _ADAMW), given, ("beta1", "beta2", "eps"))
    betas = 0 <= found.beta1 < 1 and 0 <= found.beta2 < 1
    if not (betas and found.eps > 0 and math.isfinite(found.eps)):
        raise BadValue(FLAG, text, WORDS)
    return found


class AdamW:
    """Loshchilov and Hutter 2019 (arXiv:1711.05101), Algorithm 2, over one flat vector in one round.

    m <- beta1 m + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2,
    x <- x - lr (m' / (sqrt(v') + eps) + decay x),    m' = m / (1 - beta1^t),    v' = v / (1 - beta2^t).
    The decay is no part of the direction g.
    """

    def __init__(self, kind: Optimizer, room: tuple[Tensor, Tensor, Tensor]) -> None:
        self._kind, self._m, self._v, self._root = kind, *room
        self._m.zero_()
        self._v.zero_()
        self._steps = 0

    def step(self, x: Tensor, g: Tensor, *, lr: float, decay: float) -> None:
        """Move x along -g, in place."""
        self._steps += 1
        kind, m, v = self._kind, self._m, self._v
        m.lerp_(g, 1 - kind.beta1)
        v.mul_(kind.beta2).addcmul_(g, g, value=1 - kind.beta2)
        root = self._root.copy_(v).sqrt_().div_(math.sqrt(1 - kind.beta2**self._steps)).add_(kind.eps)
        if decay:
            x.mul_(1 - lr * decay)
        x.addcdiv_(m, root, value=-lr / (1 - kind.beta1**self._steps))
