"""How large a model is: its parameters, and what one sample costs in operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from edgeflock.common.models.kit.base import Net

# In the name of what multiplies matrices, or does as much: without a formula it is named.
_WORDS = {"attention", "bmm", "cdist", "cholesky", "convolution", "dot", "eig", "eigh", "fft", "gru", "inv"}
_WORDS |= {
    "linear",
    "lstm",
    "lu",
    "matmul",
    "mm",
    "mv",
    "qr",
    "rnn",
    "solve",
    "svd",
    "transformer",
    "trilinear",
}
_OURS = ("aten", "prim", "prims", "profiler")  # libraries whose other operations multiply with no weight


class Operations(NamedTuple):
    """What a pass of one sample takes, and which of torch's operations are not in it."""

    forward: int
    backward: int
    uncounted: tuple[str, ...]

    @property
    def words(self) -> str:
        """What is not counted, in a sentence; nothing if all is."""
        return f"the operations of {', '.join(self.uncounted)} are not counted" if self.uncounted else ""


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
        self.uncounted: dict[str, None] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        formula = flop_registry.get(packet)
        if formula is not None:
            self.total += int(formula(*args, **(kwargs or {}), out_val=made))
        elif (name := str(packet).removeprefix("aten.")) in _FORMULAS:
            self.total += _FORMULAS[name](*args)
        elif _is_heavy(func.namespace, name):
            self.uncounted[name] = None
        return made


def _is_heavy(library: str, name: str) -> bool:
    return library not in _OURS or ("fused" not in name and not _WORDS.isdisjoint(name.split("_")))


def _recurrent(x: Tensor, of_input: Tensor, of_state: Tensor, *_: Any) -> int:
    """A layer of an LSTM, one way: every step multiplies with both of its matrices."""
    return 2 * (x.numel() // x.shape[-1]) * (of_input.numel() + of_state.numel())


def _recurrent_back(x: Tensor, of_input: Tensor, of_state: Tensor, *more: Any) -> int:
    """What the chain rule needs of it, and not every gradient that oneDNN makes at once: of the matrices that
    are trained, of the input where that depends on what is trained, and of the state from step to step."""
    begun: Tensor = more[2]  # the state before the first step
    steps, batch = x.shape[:2]
    trained = sum(matrix.numel() for matrix in (of_input, of_state) if matrix.requires_grad)
    to_input = of_input.numel() if x.requires_grad else 0
    to_state = of_state.numel() * (steps if begun.requires_grad else steps - 1)
    return int(2 * batch * (steps * (trained + to_input) + to_state))


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    return _scores(query, key) * int(query.shape[-1] + value.shape[-1])


def _attention_back(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any) -> int:
    """As torch counts it on a GPU: the scores are made once more."""
    return _scores(query, key) * int(3 * query.shape[-1] + 2 * value.shape[-1])


def _scores(query: Tensor, key: Tensor) -> int:
    return 2 * (query.numel() // query.shape[-1]) * int(key.shape[-2])


def _trilinear(*args: Any) -> int:
    """Of nn.Bilinear: a product for every combination."""
    shapes = []
    for tensor, added in zip(args[:3], args[3:6], strict=True):
        for place in sorted(added):
            tensor = tensor.unsqueeze(place)
        shapes.append(tensor.shape)
    together = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return int(2 * prod(together))


_FORMULAS: dict[str, Callable[..., int]] = {  # of what torch has none for
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_back,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_back,
    "_trilinear": _trilinear,
    "mv": lambda matrix, _: 2 * matrix.numel(),
    "addmv": lambda _, matrix, __: 2 * matrix.numel(),
    "dot": lambda one, _: 2 * one.numel(),
    "vdot": lambda one, _: 2 * one.numel(),
    "addbmm": lambda _, one, other: 2 * one.numel() * other.shape[-1],
}


def training_flops(net: Net, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the operations of one sample's forward pass and of its backward pass."""
    return operations(net, shape)[:2]


def operations(net: Net, shape: tuple[int, ...]) -> Operations:
    """Return what one sample's forward pass and its backward pass take.

    Only multiplications with weights count, two operations each. Nothing of the net changes.
    """
    training = net.training
    try:
        net.eval()
        x, y = net.task.example(shape, tokens=net.tokens)
        with _apart(net), _FlopCounter() as counter:
            _, logits = net(x)
            forward = counter.total
            net.loss(logits, y).backward()  # type: ignore[no-untyped-call]
            return Operations(forward, counter.total - forward, tuple(counter.uncounted))
    finally:
        net.train(training)


@contextmanager
def _apart(net: Net) -> Iterator[None]:
    """Let a model compute with others of the same numbers in its parameters' places: gradients go to those.

    Not by torch.func.functional_call, which does not find a child that is named as something of ours.
    """
    places = [
        (part._parameters, name, own)
        for part in net.modules()
        for name, own in part._parameters.items()
        if own is not None
    ]
    others = {id(own): own.detach().requires_grad_(own.requires_grad) for _, _, own in places}
    for parameter in (one for one in others.values() if one.requires_grad):
        parameter.register_post_accumulate_grad_hook(_forget)  # type: ignore[no-untyped-call]
    for table, name, own in places:
        cast("dict[str, Tensor]", table)[name] = others[id(own)]
    try:
        yield
    finally:
        for table, name, own in places:
            table[name] = own


def _forget(parameter: Tensor) -> None:
    """A model's worth of gradients is not needed at a time."""
    parameter.grad = None
