"""Layers of our own: dropout from an explicit generator, a fast 2x2 maximum, normalisation by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.errors import BadValue


class SeededDropout(nn.Module):
    """Dropout whose mask comes from `generator`, which the engine sets; never from the global one.

    `whole_channels` drops whole feature maps, as nn.Dropout2d does.
    """

    def __init__(self, p: float = 0.5, *, whole_channels: bool = False) -> None:
        super().__init__()
        self.p = p
        self.whole_channels = whole_channels
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.generator is None:
            raise RuntimeError("a model with dropout is trained without a generator")
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.whole_channels else x.shape
        kept = torch.empty(shape, dtype=x.dtype, device=x.device)
        kept.bernoulli_(1 - self.p, generator=self.generator)
        return x * kept.div_(1 - self.p) if self.p < 1 else x * kept

    def extra_repr(self) -> str:
        return f"p={self.p}"


@contextmanager
def seeded_dropouts(net: nn.Module) -> Iterator[None]:
    """Give the dropout layers a generator for a while that nobody else has."""
    layers = [module for module in net.modules() if isinstance(module, SeededDropout)]
    before = [layer.generator for layer in layers]
    for layer in layers:
        layer.generator = torch.Generator().manual_seed(0)
    try:
        yield
    finally:
        for layer, generator in zip(layers, before, strict=True):
            layer.generator = generator


class _Max2x2(torch.autograd.Function):
    """F.max_pool2d(x, 2) with the same gradient at ties (to the first of the window, row by row).

    PyTorch's own kernel takes 36 % of a LeNet-5 step on a CPU; pairwise maxima are vectorised.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
        even = x[..., :height, :width]
        pairs = torch.maximum(even[..., 0::2], even[..., 1::2])
        ctx.save_for_backward(even, pairs)
        ctx.shape = x.shape
        return torch.maximum(pairs[..., 0::2, :], pairs[..., 1::2, :])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, out: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        even, pairs = ctx.saved_tensors
        to_pairs = torch.empty_like(pairs)
        upper = to_pairs[..., 0::2, :]
        torch.mul(out, pairs[..., 0::2, :] >= pairs[..., 1::2, :], out=upper)
        torch.sub(out, upper, out=to_pairs[..., 1::2, :])
        cut = even.shape != ctx.shape
        whole = torch.zeros(ctx.shape, dtype=out.dtype) if cut else torch.empty_like(even)
        grad = whole[..., : even.shape[-2], : even.shape[-1]]
        left = grad[..., 0::2]
        torch.mul(to_pairs, even[..., 0::2] >= even[..., 1::2], out=left)
        torch.sub(to_pairs, left, out=grad[..., 1::2])
        return whole


def max_pool2(x: Tensor) -> Tensor:
    """Return the maxima of 2x2 windows: F.max_pool2d(x, 2)."""
    if not isinstance(x, Tensor) or x.device.type != "cpu" or _is_traced():  # the first: symbols, to quantize
        return F.max_pool2d(x, 2)
    pooled: Tensor = _Max2x2.apply(x)  # type: ignore[no-untyped-call]
    return pooled


def _is_traced() -> bool:
    """Whether a TorchScript is being made: it holds no functions of ours."""
    return bool(torch.jit.is_tracing())  # type: ignore # pyright: ignore[reportPrivateImportUsage]


def padded(x: Tensor, size: int, stride: int) -> Tensor:
    """Return images with as many zeros as windows need that begin at every stride-th place, at the end first.

    TensorFlow's padding SAME, with which some published nets were trained.
    """
    lacking = [max(0, size - (side % stride or stride)) for side in (x.shape[-1], x.shape[-2])]
    if not any(lacking):
        return x
    return F.pad(x, [part for lack in lacking for part in (lack // 2, lack - lack // 2)])


class MaxPool2(nn.Module):
    """max_pool2 as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return max_pool2(x)


def normalisation(kind: str, channels: int, groups: int) -> nn.Module:
    """Return GroupNorm or BatchNorm over the channels.

    Raises BadValue if the channels cannot be divided into that many groups.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if channels % groups:
        raise BadValue("model argument groups", groups, f"a divisor of {channels}")
    return nn.GroupNorm(groups, channels)
