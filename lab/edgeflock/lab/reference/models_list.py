"""fl-lab models: every model with its size for one kind of input, as FedTrip's Table III tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edgeflock.common.errors import UsageError
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.flops import forward_flops, parameter_count
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
