"""fl-lab models: every model with its size for one kind of input, as FedTrip's Table III tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edgeflock.common.errors import UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.flops import forward_flops, parameter_count, training_flops
from edgeflock.common.run import CUSTOM, ModelDescription
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.lab.reference.plugins_list import origins

MIB, MILLION, ITEM_BYTES = 1 << 20, 1e6, 4


@dataclass(frozen=True)
class ModelSize:
    """What a model takes; a multiply-add is one, as the paper's FLOPs are."""

    parameters: int
    multiply_adds: int  # of one sample's forward pass

    @property
    def mib(self) -> float:
        return self.parameters * ITEM_BYTES / MIB


def size(
    name: str, shape: tuple[int, ...], classes: int, arguments: Mapping[str, str] | None = None
) -> ModelSize:
    """Return a model's size for samples of a shape. Raises BadValue if it does not take them."""
    net = models.build(name, input_shape=shape, classes=classes, arguments=arguments, seed=0)
    return ModelSize(parameter_count(net), forward_flops(net, shape) // 2)


def shares(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    arguments: Mapping[str, str],
    tuning: Tuning,
) -> Iterator[str]:
    """Yield what travels of a model, what stays, and what it takes so: of one of the package, or one's own.

    Raises BadValue for patterns and adapters that do not fit it.
    """
    own = name if ":" in name else None
    described = ModelDescription(CUSTOM if own else name, shape, classes, arguments)
    net = models.build_net(described, 0, own, tuning)
    flat, passes = FlatModel(net), training_flops(net, shape)
    forward, backward = (f"{count / MILLION:,.3f}" for count in passes)
    moved = flat.layout.size_bytes + flat.layouts.buffers.size_bytes + flat.layouts.counters.size_bytes
    kept, frozen = flat.own.numel(), flat.base.numel() - flat.own.numel()
    yield f"{name}, {'x'.join(map(str, shape))}, {classes} classes"
    yield f"    trained together, sent both ways in every round   {_amount(flat.params.numel(), moved)}"
    yield f"    kept and trained by every client                  {_amount(kept, kept * ITEM_BYTES)}"
    yield f"    frozen, fetched at most once                      {_amount(frozen, frozen * ITEM_BYTES)}"
    yield f"    MFLOP of a sample's pass forward, and back        {forward}, {backward}"
    yield "MB of 2^20 bytes, of what travels with the statistics of BatchNorm; MFLOP as everywhere, two of a"
    yield "multiply-add."


def _amount(numbers: int, size_bytes: int) -> str:
    return f"{numbers:>12,}{size_bytes / MIB:>10.3f} MB"


def lines(
    names: Iterable[str], shape: tuple[int, ...], classes: int, arguments: Mapping[str, str]
) -> Iterator[str]:
    """Yield the list: sizes, what each model is, and its arguments."""
    about = f"{'x'.join(map(str, shape))}, {classes} classes"
    yield f"{about:<26}{'parameters':>12}{'MB':>10}{'MFLOPs':>12}"
    for name in names:
        yield f"{name:<26}{_sizes(name, shape, classes, arguments)}"
        if name not in models.names():
            yield f"    plug-in, {origins('models', name)}"
            continue
        module = models.find(name)
        yield f"    {(module.__doc__ or '').partition(chr(10))[0].removeprefix(f'{name}: ')}"
        for key, argument in getattr(module, "ARGUMENTS", {}).items():
            yield f"    {key}={argument.default}  {argument.allowed}"
    yield "MB of 2^20 bytes; MFLOPs: million multiply-adds of a sample's forward pass, each counted"
    yield "as one, as in papers: everywhere else in edgeflock it is two operations."


def _sizes(name: str, shape: tuple[int, ...], classes: int, arguments: Mapping[str, str]) -> str:
    try:
        found = size(name, shape, classes, arguments)
    except UsageError as error:
        if arguments:
            raise
        said = str(error)
        return f"{'-':>12}{'-':>10}{'-':>12}  {said.partition('allowed is ')[2] or said}"
    return f"{found.parameters:>12,}{found.mib:>10.3f}{found.multiply_adds / MILLION:>12.3f}"
