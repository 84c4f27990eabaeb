"""Low-rank adapters: beside a frozen layer a product of two thin ones is trained, which merges into it again.

Hu et al. 2021 (arXiv:2106.09685): W x + s B A x, s = alpha / rank, A drawn as layers are, B zero at first.
Of a convolution A has its window, stride and padding, and B is a 1x1 one, so that B A has the shape of W.
Names stay: beside `fc.weight` there are `fc.lora_a` and `fc.lora_b`, and no layer is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.errors import BadValue
from edgeflock.common.tuning import parts, phrase

FLAG = "--adapter"
WORDS = (
    "lora with rank=N >= 1, and if wanted alpha=X > 0 and target=PATTERNS of layers, such as "
    "'lora:rank=4,target=features.*|classifier'"
)
_LORA, _A, _B = "lora", "lora_a", "lora_b"


@dataclass(frozen=True)
class Adapter:
    """What is put beside which layers; `str()` gives the text that `parse` understands."""

    rank: int = 4
    alpha: float = 0.0  # 0: as the rank, which is a scale of 1
    target: str = ""  # patterns of layers; empty: all that can have one and are not trained whole

    def __str__(self) -> str:
        target = f",target={self.target}" if self.target else ""
        return f"{_LORA}:rank={self.rank},alpha={self.alpha:g}{target}"

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def parse(text: str) -> Adapter | None:
    """Return what an operator writes, None of nothing. Raises BadValue."""
    if not text:
        return None
    word, given = phrase.split(FLAG, text, WORDS)
    if word != _LORA:
        raise BadValue(FLAG, text, WORDS)
    found = phrase.filled(FLAG, text, WORDS, Adapter(), given, ("rank", "alpha", "target"))
    found = replace(found, alpha=found.alpha or float(found.rank))
    if found.rank < 1 or not (found.alpha > 0 and math.isfinite(found.alpha)):
        raise BadValue(FLAG, text, WORDS)
    return found


def attach(net: nn.Module, adapter: Adapter, sample: Tensor) -> None:
    """Put adapters beside a model's layers, which are frozen; only those are left out that are trained whole.

    Draws from torch's global generator; the model is called once with the sample.
    Raises BadValue if no layer is meant, or one that is never called.
    """
    able = {name: layer for name, layer in net.named_modules() if _can(layer)}
    chosen = parts.matched(able, parts.patterns(adapter.target)) if adapter.target else list(able)
    if adapter.target:
        parts.check(FLAG, adapter.target, list(able))
    frozen = [name for name in chosen if not able[name].weight.requires_grad]
    if not frozen:
        raise BadValue(FLAG, str(adapter), f"{WORDS} (no frozen layer that can have one is meant)")
    for name in frozen:
        _beside(able[name], adapter)
    if idle := _idle(net, {name: able[name] for name in frozen}, sample):
        allowed = f"a target without {idle}: the model uses its weights and never calls it, as attention does"
        raise BadValue(FLAG, str(adapter), allowed)


def _can(layer: nn.Module) -> bool:
    """Whether a layer can have one: of a convolution in groups each is as small as an adapter would be."""
    return isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)


def _beside(layer: nn.Module, adapter: Adapter) -> None:
    weight: Any = layer.weight
    down = torch.empty(adapter.rank, *weight.shape[1:], dtype=weight.dtype)
    nn.init.kaiming_uniform_(down, a=math.sqrt(5))
    layer.register_parameter(_A, nn.Parameter(down))
    layer.register_parameter(_B, nn.Parameter(torch.zeros(len(weight), adapter.rank, dtype=weight.dtype)))
    layer.register_forward_hook(partial(_added, scale=adapter.scale))


def _added(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, scale: float) -> Tensor:
    """Return what a layer gives, with its adapter's part."""
    down, up = getattr(layer, _A, None), getattr(layer, _B, None)
    if down is None or up is None:  # merged
        return output
    if isinstance(layer, nn.Conv2d):
        thin = layer._conv_forward(inputs[0], down, None)
        return output + scale * F.conv2d(thin, up[:, :, None, None])
    return output + scale * F.linear(F.linear(inputs[0], down), up)


def _idle(net: nn.Module, layers: Mapping[str, nn.Module], sample: Tensor) -> str:
    """Return a layer that is not called when the model is; empty if all are, or it takes no such sample."""
    called: set[str] = set()
    hooks = [
        layer.register_forward_hook(lambda *_, name=name: called.add(name)) for name, layer in layers.items()
    ]
    training = net.training
    net.eval()
    try:
        with torch.no_grad():
            net(sample)
    except Exception:
        return ""
    finally:
        for hook in hooks:
            hook.remove()
        net.train(training)
    return next((name for name in layers if name not in called), "")


def names(net: nn.Module) -> list[str]:
    """Return the parameters that are adapters'."""
    return [name for name, _ in net.named_parameters() if name.rpartition(".")[2] in (_A, _B)]


def merged(tensors: Mapping[str, Tensor], adapter: Adapter | None) -> dict[str, Tensor]:
    """Return a model's tensors as they are without adapters, which are in the weights then."""
    found = dict(tensors)
    if adapter is None:
        return found
    for layer in _adapted(tensors):
        down, up, weight = found.pop(f"{layer}{_A}"), found.pop(f"{layer}{_B}"), f"{layer}weight"
        product = (up.double() @ down.double().flatten(1)).view(found[weight].shape)
        found[weight] = (found[weight].double() + adapter.scale * product).to(found[weight].dtype)
    return found


def merge(net: nn.Module, adapter: Adapter | None) -> None:
    """Let a model be the same without adapters, in place."""
    if adapter is None:
        return
    plain = merged(net.state_dict(), adapter)
    for layer in net.modules():
        for name in (_A, _B):
            layer._parameters.pop(name, None)
    net.load_state_dict(plain, strict=False)


def _adapted(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield the layers that have one, with the dot behind their names."""
    yield from (name.removesuffix(_A) for name in tensors if name.rpartition(".")[2] == _A)
