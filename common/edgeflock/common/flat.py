"""Models as flat tensors: parameters and buffers of a module become views into one contiguous tensor each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgeflock.common.payload.layout import DIGEST_BYTES, Layout, ModelLayouts
from edgeflock.common.payload.memory import memory
from edgeflock.common.payload.tensorfile import Group

Change = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
Named = tuple[str, Tensor]
Place = tuple[dict[str, Tensor | None], str]  # a module's table of buffers, and the name in it

_DTYPES = {torch.float32: "float32", torch.int64: "int64"}


def views(flat: Tensor, layout: Layout) -> list[Tensor]:
    """Return one view per tensor of the layout into the flat tensor."""
    return [
        flat[start : start + spec.elements].view(spec.shape)
        for start, spec in zip(layout.offsets(), layout.tensors, strict=True)
    ]


def grouped(tensors: Mapping[str, Tensor]) -> list[Group]:
    """Return tensors by name as what a file of them is written from, as far as it can hold them."""
    return [
        (Layout.of([(name, tensor.shape)], _DTYPES[tensor.dtype]), tensor.reshape(-1).contiguous())
        for name, tensor in tensors.items()
        if tensor.dtype in _DTYPES
    ]


def regrouped(groups: Sequence[Group], change: Change) -> list[Group]:
    """Return what a file is written from, with its tensors changed by name."""
    parts = ((layout.tensors, views(flat, layout)) for layout, flat in groups)
    named = {spec.name: view for specs, found in parts for spec, view in zip(specs, found, strict=True)}
    return grouped(change(named))


@dataclass(frozen=True)
class Buffer:
    """A buffer of a module, wherever in it that stands: several parts may share one."""

    name: str
    places: tuple[Place, ...]

    @property
    def tensor(self) -> Tensor | None:
        table, name = self.places[0]
        return table[name]

    def put(self, tensor: Tensor | None) -> None:
        for table, name in self.places:
            table[name] = tensor


def buffers_of(module: nn.Module) -> list[Buffer]:
    """Return the buffers, each with the first of its names; what is None by now may be one later."""
    places: dict[int | str, list[tuple[str, Place]]] = {}
    for prefix, owner in module.named_modules():
        for leaf, tensor in owner._buffers.items():
            name = f"{prefix}.{leaf}" if prefix else leaf
            places.setdefault(name if tensor is None else id(tensor), []).append(
                (name, (owner._buffers, leaf))
            )
    return [Buffer(found[0][0], tuple(place for _, place in found)) for found in places.values()]


class _Kept:
    """A buffer that no training step changes, as the factory made it."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer, self._live = buffer, buffer.tensor
        self.made = None if self._live is None else self._live.detach().clone()
        self._version = 0 if self._live is None else self._live._version

    def restore(self) -> None:
        """Put it back, if something else stands there now."""
        live = self._live
        if self._buffer.tensor is live and (live is None or live._version == self._version):
            return
        if live is not None and self.made is not None:
            live.copy_(self.made)
            self._version = live._version
        self._buffer.put(live)


class FlatModel:
    """A module whose trained parameters, float buffers and integer buffers lie in three flat tensors.

    Writing into `params`, `buffers` or `counters` changes the module, and the other way round; a foreign
    module's buffers follow at `restore`, and are followed at `settle`. What is frozen lies in a fourth one,
    `base`: parameters, and the statistics of normalisations that are frozen themselves. What every client
    keeps as its own lies in `own`, its counts in `own_counts`; `base` ends with what `own` begins with.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        found = buffers_of(module)  # on another device what is shared would be parted
        constant = getattr(module, "constant", frozenset[str]())
        self.module = module.to(device=device, dtype=torch.float32)
        for buffer in found:
            buffer.put(buffer.tensor)  # shared again
        named: list[Named] = list(self.module.named_parameters())
        kept: frozenset[str] = getattr(module, "kept", frozenset())
        trained = [one for one in named if one[1].requires_grad]
        shared, own = ([one for one in trained if (one[0] in kept) is here] for here in (False, True))
        still = _of(found, getattr(module, "still", ()))
        self._foreign = bool(getattr(module, "foreign", False))
        found = [buffer for buffer in found if buffer not in still]
        moving = [buffer for buffer in found if buffer.tensor is not None and buffer.name not in constant]
        floats = [buffer for buffer in moving if _tensor(buffer).is_floating_point()]
        whole = [buffer for buffer in moving if not _tensor(buffer).is_floating_point()]
        if not self._foreign:  # a module of torch's: what is no count stays what it is
            whole = [buffer for buffer in whole if _tensor(buffer).dtype == torch.int64]
        self._kept = {buffer.name: _Kept(buffer) for buffer in found if buffer not in (*floats, *whole)}
        own_floats, own_whole = ([one for one in part if one.name in kept] for part in (floats, whole))
        floats, whole = ([one for one in part if one.name not in kept] for part in (floats, whole))
        begun = [*own, *((buffer.name, _tensor(buffer)) for buffer in own_floats)]
        frozen = [one for one in named if not one[1].requires_grad]
        self.base, base = self._flatten_base(frozen, still, begun)
        self.params, self.layout = _flatten_parameters(shared)
        self.buffers, buffers = _flatten(floats, torch.float32)
        self.counters, counters = _flatten(whole, torch.int64)
        self.layouts = ModelLayouts(self.layout, buffers, counters, base)
        self.floats = floats  # in the layout's order
        self.parameters = [tensor for _, tensor in shared]
        self._moving = [
            *_with_views(floats, self.buffers, buffers),
            *_with_views(whole, self.counters, counters),
            *self._flatten_own(own, own_floats, own_whole),
        ]

    @property
    def device(self) -> torch.device:
        return self.params.device

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """The buffers that no training step changes, as the factory made them."""
        return {name: kept.made for name, kept in self._kept.items() if kept.made is not None}

    @property
    def lasting(self) -> Mapping[str, Tensor]:
        """What stays as it is of all that PyTorch would save with the module: the base, and such buffers."""
        saved = self.module.state_dict().keys()
        parts = zip(self.layouts.base.tensors, views(self.base, self.layouts.base), strict=True)
        own = self.own_named(None, None)
        stay = {**{spec.name: part for spec, part in parts}, **self._counts, **own, **self.constants}
        return {name: tensor for name, tensor in stay.items() if name in saved}

    @property
    def base_digest(self) -> bytes:
        """Identity of what is frozen: its layout and its numbers; empty if nothing is."""
        if not self.base.numel():
            return b""
        hashed = hashlib.sha256(self.layouts.base.digest)
        hashed.update(memory(self.base.cpu()))
        return hashed.digest()[:DIGEST_BYTES]

    @property
    def whole(self) -> bool:
        """Whether all parameters are trained, and together."""
        return not (self._frozen or self.own_parameters)

    @property
    def keeps(self) -> bool:
        """Whether clients keep something of the model as their own."""
        return bool(self.own.numel() or self.own_counts.numel())

    @property
    def statistics(self) -> tuple[Tensor, ...]:
        """What passes in training change of themselves."""
        return self.buffers, self.counters, self.own[self.own_trained.numel() :], self.own_counts

    def settle(self) -> None:
        """Let the flat tensors hold what the module's buffers do: foreign code puts others in their place."""
        if self._foreign:
            for buffer, view, dtype in self._moving:
                now = _tensor(buffer)
                if now is not view:
                    view.copy_(now.detach())
                    if dtype == view.dtype:
                        buffer.put(view)

    def restore(self) -> None:
        """Let the module's buffers be what the flat tensors hold, and all others as the factory made them."""
        if self._foreign:
            for buffer, view, dtype in self._moving:
                buffer.put(view if dtype == view.dtype else view.to(dtype))
            for kept in self._kept.values():
                kept.restore()

    def own_named(self, numbers: Tensor | None, counts: Tensor | None) -> Mapping[str, Tensor]:
        """Return what a client keeps by name: that, or what everybody begins with."""
        start = self.base[self.base.numel() - self.own.numel() :]
        parts = (
            (self._own_layout, start if numbers is None else numbers),
            (self._own_count_layout, self._own_begun if counts is None else counts),
        )
        return {
            spec.name: part
            for layout, flat in parts
            for spec, part in zip(layout.tensors, views(flat, layout), strict=True)
        }

    def begin_own(self, numbers: Tensor | None, counts: Tensor | None) -> None:
        """Let what a client keeps be that, or what everybody begins with."""
        start = self.base[self.base.numel() - self.own.numel() :]
        self.own.copy_(start if numbers is None else numbers)
        self.own_counts.copy_(self._own_begun if counts is None else counts)

    def _flatten_own(
        self, own: list[Named], floats: list[Buffer], whole: list[Buffer]
    ) -> Iterator[tuple[Buffer, Tensor, torch.dtype]]:
        """Let what is a client's own lie together: trained numbers first, then buffers; counts apart."""
        trained, _ = _flat_of(own)
        numbers, layout = _flatten(floats, torch.float32)
        self.own = torch.cat([trained, numbers])
        self.own_trained = self.own[: len(trained)]
        for (_, tensor), view in zip(own, views(self.own_trained, _flat_of(own)[1]), strict=True):
            tensor.data = view
        self.own_parameters = [tensor for _, tensor in own]
        self.own_counts, counts = _flatten(whole, torch.int64)
        self._own_begun = self.own_counts.clone()
        self._own_layout = Layout((*_flat_of(own)[1].tensors, *layout.tensors))
        self._own_count_layout = counts
        self.own_joins = any(one.name.endswith("num_batches_tracked") for one in whole)
        yield from _with_views(floats, self.own[len(trained) :], layout)
        yield from _with_views(whole, self.own_counts, counts)

    def _flatten_base(
        self, frozen: list[Named], still: list[Buffer], begun: list[Named]
    ) -> tuple[Tensor, Layout]:
        self._frozen = [name for name, _ in frozen]
        floats = [buffer for buffer in still if _tensor(buffer).is_floating_point()]
        self._counts = {one.name: _tensor(one) for one in still if one not in floats}
        named = [*frozen, *((buffer.name, _tensor(buffer)) for buffer in floats)]
        flat, layout = _flat_of([*named, *begun])
        parts = views(flat, layout)
        for (_, tensor), view in zip(frozen, parts, strict=False):
            tensor.data = view
        for buffer, view in zip(floats, parts[len(frozen) : len(named)], strict=True):
            buffer.put(view)
        return flat, layout


def _of(buffers: Iterable[Buffer], modules: Iterable[nn.Module]) -> list[Buffer]:
    """Return the buffers that stand in one of the modules."""
    tables = {id(module._buffers) for module in modules}
    return [one for one in buffers if one.tensor is not None and id(one.places[0][0]) in tables]


def _flat_of(named: list[Named]) -> tuple[Tensor, Layout]:
    layout = Layout.of((name, tensor.shape) for name, tensor in named)
    parts = [tensor.detach().reshape(-1) for _, tensor in named]
    return torch.cat(parts) if parts else torch.zeros(0), layout


def _flatten_parameters(named: list[Named]) -> tuple[Tensor, Layout]:
    flat, layout = _flat_of(named)
    for (_, tensor), view in zip(named, views(flat, layout), strict=True):
        tensor.data = view
    return flat, layout


def _tensor(buffer: Buffer) -> Tensor:
    tensor = buffer.tensor
    if tensor is None:
        raise TypeError(f"the buffer {buffer.name!r} is None, and was none when the model was made")
    return tensor


def _flatten(buffers: Iterable[Buffer], dtype: torch.dtype) -> tuple[Tensor, Layout]:
    """Return the numbers of the buffers in one tensor, and where they lie in it."""
    named = [(buffer.name, _tensor(buffer)) for buffer in buffers]
    layout = Layout.of(((name, tensor.shape) for name, tensor in named), _DTYPES[dtype])
    parts = [tensor.detach().reshape(-1).to(dtype) for _, tensor in named]
    return (torch.cat(parts) if parts else torch.zeros(0, dtype=dtype)), layout


def _with_views(
    buffers: Iterable[Buffer], flat: Tensor, layout: Layout
) -> Iterator[tuple[Buffer, Tensor, torch.dtype]]:
    """Give every buffer its view, which stands in its place from now on if it is of the same type."""
    for buffer, view in zip(buffers, views(flat, layout), strict=True):
        dtype = _tensor(buffer).dtype
        if dtype == view.dtype:
            buffer.put(view)
        yield buffer, view, dtype
