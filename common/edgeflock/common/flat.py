"""Models as flat tensors: parameters and buffers of a module become views into one contiguous tensor each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgeflock.common.payload.layout import Layout, ModelLayouts


def views(flat: Tensor, layout: Layout) -> list[Tensor]:
    """Return one view per tensor of the layout into the flat tensor."""
    return [
        flat[start : start + spec.elements].view(spec.shape)
        for start, spec in zip(layout.offsets(), layout.tensors, strict=True)
    ]


class FlatModel:
    """A module whose trainable parameters, float buffers and integer buffers lie in three flat tensors.

    Writing into `params`, `buffers` or `counters` changes the module, and the other way round.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device=device, dtype=torch.float32)
        self.params, self.layout = self._flatten_parameters()
        self.buffers, buffers = self._flatten_buffers(torch.float32)
        self.counters, counters = self._flatten_buffers(torch.int64)
        self.layouts = ModelLayouts(self.layout, buffers, counters)
        self.parameters = list(module.parameters())

    @property
    def device(self) -> torch.device:
        return self.params.device

    def _flatten_parameters(self) -> tuple[Tensor, Layout]:
        named = list(self.module.named_parameters())
        layout = Layout.of((name, tensor.shape) for name, tensor in named)
        flat = torch.cat([tensor.detach().reshape(-1) for _, tensor in named])
        for (_, tensor), view in zip(named, views(flat, layout), strict=True):
            tensor.data = view
        return flat, layout

    def _flatten_buffers(self, dtype: torch.dtype) -> tuple[Tensor, Layout]:
        named = [(name, tensor) for name, tensor in self.module.named_buffers() if tensor.dtype == dtype]
        layout = Layout.of(
            ((name, tensor.shape) for name, tensor in named), "float32" if dtype == torch.float32 else "int64"
        )
        parts = [tensor.detach().reshape(-1) for _, tensor in named]
        flat = torch.cat(parts) if parts else torch.zeros(0, dtype=dtype)
        for (name, _), view in zip(named, views(flat, layout), strict=True):
            owner, _, leaf = name.rpartition(".")
            self.module.get_submodule(owner)._buffers[leaf] = view
        return flat, layout
