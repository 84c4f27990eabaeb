"""How large a model is: its parameters, and what one sample costs in operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from edgeflock.common.models.kit.base import Net


def parameter_count(net: nn.Module) -> int:
    """Return |w|, the number of float parameters."""
    return sum(parameter.numel() for parameter in net.parameters())


def forward_flops(net: Net, shape: tuple[int, ...]) -> int:
    """Return the operations of one sample's forward pass: two for every multiplication with a weight."""
    return training_flops(net, shape)[0]


class _FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what torch's own formulas say of every operation; its FlopCounterMode brings in 80 MB."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here: torch would import its compiler to say so

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        self.total += 0 if formula is None else int(formula(*args, **(kwargs or {}), out_val=made))
        return made


def training_flops(net: Net, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the operations of one sample's forward pass and of its backward pass.

    Only multiplications with weights count, two operations each. Nothing of the net changes.
    """
    training = net.training
    parameters = {name: p.detach().requires_grad_(p.requires_grad) for name, p in net.named_parameters()}
    for parameter in (one for one in parameters.values() if one.requires_grad):
        parameter.register_post_accumulate_grad_hook(_forget)  # type: ignore[no-untyped-call]
    try:
        net.eval()
        with _FlopCounter() as counter:
            _, logits = torch.func.functional_call(net, parameters, (torch.zeros(1, *shape),))
            forward = counter.total
            net.loss(logits, torch.zeros(1, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
            return forward, counter.total - forward
    finally:
        net.train(training)


def _forget(parameter: Tensor) -> None:
    """A model's worth of gradients is not needed at a time."""
    parameter.grad = None
