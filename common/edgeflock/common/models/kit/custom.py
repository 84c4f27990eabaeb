"""The user's own models: `package.module:factory`, made into a Net without changing a parameter's name.

The factory is called as `factory(input_shape, classes, **arguments)`, or without the two if it does not take
them, and returns an nn.Module whose forward gives (features, logits) or logits alone; then the features are
the flattened input of the last nn.Linear it calls, or, of a task without classes and a model without
nn.Linear, its outputs. A model that fails on floats is tried with whole numbers, such as the tokens of an
nn.Embedding.

nn.Dropout layers are replaced by ours, which draw from the run's generator; dropout inside others (nn.LSTM,
nn.MultiheadAttention, F.dropout) draws from torch's global one: no promise of same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from edgeflock.common.errors import BadValue
from edgeflock.common.flat import Buffer, buffers_of
from edgeflock.common.foreign import ForeignError, foreign
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout, seeded_dropouts
from edgeflock.common.plugins.loading import load
from edgeflock.common.tasks.kit.base import LearningTask, words

Factory = Callable[..., nn.Module]

_FORM = "package.module:factory, importable from here"
_CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_UNSEEDED = (nn.AlphaDropout, nn.FeatureAlphaDropout)


def load_custom(reference: str) -> Factory:
    """Import the factory that `package.module:factory` names.

    Raises BadValue if there is none, PluginError if its module fails.
    """
    return callable_of(load(reference, "--model", "factory"), reference)


def callable_of(factory: object, reference: str) -> Factory:
    """Return what was loaded as a factory. Raises BadValue if it is none."""
    if not callable(factory):
        raise BadValue("--model", reference, f"{_FORM} ({type(factory).__name__} cannot be called)")
    return cast("Factory", factory)


def call(
    factory: Factory, shape: tuple[int, ...], classes: int, texts: Mapping[str, str], reference: str
) -> nn.Module:
    """Call the factory. Raises BadValue with its own words if it fails, whatever a foreign factory raises."""
    with _sentence(reference, f"a factory that can be called with ({shape}, {classes})"):
        if not _takes(factory, (shape, classes), texts) and _takes(factory, (), texts):
            return factory(**texts)
        return factory(shape, classes, **texts)


def _takes(factory: Factory, values: tuple[object, ...], texts: Mapping[str, str]) -> bool:
    """Whether a factory can be called with these."""
    try:
        inspect.signature(factory).bind(*values, **texts)
    except ValueError:  # it is written in C and does not say
        return True
    except TypeError:
        return False
    return True


def adapt(module: nn.Module, shape: tuple[int, ...], reference: str, task: LearningTask = Net.task) -> Net:
    """Return the module as a Net for a task.

    Raises BadValue if it is no module, has no nn.Linear to take features from, or outputs that the task can
    do nothing with.
    """
    if not isinstance(module, nn.Module):
        raise BadValue(
            "--model", reference, f"a factory that returns an nn.Module, not {type(module).__name__}"
        )
    named = [*module.named_parameters(), *module.named_buffers()]
    if unreal := [name for name, tensor in named if tensor.is_complex()]:
        raise BadValue(
            "--model",
            reference,
            f"a model of real numbers ({unreal[0]} is complex: keep its two parts apart)",
        )
    with _sentence(reference, f"a model that takes an input of shape {shape}"):
        seed_dropout(module, reference)
        net = module if isinstance(module, Net) else Adapted(module, shape, reference, task)
        net.task, net.foreign = task, True
        net.constant = constant_buffers(net, shape)
        _check_features(net, shape)
    if type(net).loss is Net.loss:  # whoever has a loss of its own knows what for
        check_outputs(net, shape, reference)
    return net


def check_outputs(net: Net, shape: tuple[int, ...], name: str) -> None:
    """Raise BadValue if what the model gives for one sample is not what its task needs."""
    needed = net.task.misfit(net.gives, shape)
    if net.task.outputs and needed:
        found = words(net.gives[1:])
        raise BadValue(
            "--model", name, f"for --task {net.task.name} a model that gives {needed}, not {found}"
        )


def probe(net: Net, shape: tuple[int, ...]) -> Tensor:
    """Note what the model takes and gives, tried with one sample of nothing; return its features."""
    training = net.training
    with torch.no_grad():
        made, net.tokens = _tried(net.eval(), shape, net.task)
    net.train(training)
    features, outputs = cast("tuple[Tensor, Tensor]", made)
    net.gives = tuple(outputs.shape)
    return features


def _tried(module: nn.Module, shape: tuple[int, ...], task: LearningTask) -> tuple[Any, bool]:
    """Return what the module gives for one sample of nothing, and whether it takes whole numbers alone."""
    try:
        return module(task.example(shape)[0]), task.tokens
    except Exception:
        with suppress(Exception):
            return module(task.example(shape, tokens=True)[0]), True
        raise


@contextmanager
def _sentence(reference: str, allowed: str) -> Iterator[None]:
    """Raise BadValue with the words and the line of whatever foreign code raises."""
    try:
        with foreign("the model"):
            yield
    except ForeignError as error:
        raise BadValue("--model", reference, f"{allowed} ({error.reason})") from error


def _check_features(net: Net, shape: tuple[int, ...]) -> None:
    """A Net that somebody else has made may lack what the others have."""
    features = probe(net.train(), shape)
    if features.flatten(1).shape[1] != net.features:
        raise ValueError(f"its features are {features.flatten(1).shape[1]}, not {net.features}")


def seed_dropout(module: nn.Module, reference: str) -> None:
    """Replace every nn.Dropout inside the module, in place."""
    ours: dict[nn.Module, SeededDropout] = {}  # one that stands in several places stays one
    for name, child in list(module.named_modules(remove_duplicate=False)):
        if isinstance(child, _UNSEEDED):
            raise BadValue("--model", reference, f"a model without {type(child).__name__} ({name})")
        if isinstance(child, (nn.Dropout, *_CHANNELWISE)) and name:
            owner, _, leaf = name.rpartition(".")
            if child not in ours:
                ours[child] = SeededDropout(child.p, whole_channels=isinstance(child, _CHANNELWISE))
            module.get_submodule(owner)._modules[leaf] = ours[child]


def constant_buffers(net: Net, shape: tuple[int, ...]) -> frozenset[str]:
    """Return the names of the buffers that no training step changes, such as masks and tables of positions.

    Two steps are tried, on samples that are the same at both ends; nothing of the net changes. What tells
    nothing, because its code takes no such samples, is changed by steps as long as its numbers are finite.
    """
    every = [(buffer, buffer.tensor) for buffer in buffers_of(net)]
    found = [buffer for buffer, tensor in every if tensor is not None]
    known = {id(part._buffers) for part in net.modules() if isinstance(part, _NormBase)}
    asked = [buffer for buffer in found if id(buffer.places[0][0]) not in known]
    if not asked:
        return frozenset()
    before = {buffer.name: _copy(buffer) for buffer in found}
    changed: set[str] = set()
    told = False
    with suppress(Exception), seeded_dropouts(net):
        for _ in range(2):
            _train_once(net, shape)
            changed |= {buffer.name for buffer in asked if not _same(_copy(buffer), before[buffer.name])}
        told = True
    for buffer, tensor in every:
        if tensor is not None and not _same(tensor, before[buffer.name]):
            tensor.copy_(before[buffer.name])
        buffer.put(tensor)
    if not told:
        changed = {
            buffer.name
            for buffer in asked
            if before[buffer.name].is_floating_point() and bool(before[buffer.name].isfinite().all())
        }
    return frozenset(buffer.name for buffer in asked if buffer.name not in changed)


def _train_once(net: Net, shape: tuple[int, ...]) -> None:
    x, y = net.task.example(shape, 4, tokens=net.tokens)
    if x.is_floating_point():
        x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    net.train()
    loss = net.loss(net(x)[1], y)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if trained:
        torch.autograd.grad(loss, trained, allow_unused=True)


def _copy(buffer: Buffer) -> Tensor:
    assert buffer.tensor is not None
    return buffer.tensor.detach().clone()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same, NaN and all."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


class Adapted(Net):
    """A foreign module as a Net: it shares the module's parameters, buffers and children, names unchanged."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...], reference: str, task: LearningTask) -> None:
        super().__init__()
        self.task = task
        object.__setattr__(self, "_foreign", module)  # not registered: names keep no prefix
        self._parameters = module._parameters
        self._buffers = module._buffers
        self._modules = module._modules
        self._non_persistent_buffers_set = module._non_persistent_buffers_set
        self._seen: dict[str, Tensor] = {}
        self._pair = self._whole = False
        self._hooks: list[Any] = []
        self._probe(shape, reference)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is the adapter's own: the module may have a child of that name, such as `features`."""
        object.__setattr__(self, name, value)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output: Any = self._module(x)
        if self._pair:
            return output[0].flatten(1), output[1]
        if self._whole:
            return output.flatten(1), output
        return self._seen.pop("features").flatten(1), output

    def train(self, mode: bool = True) -> Adapted:
        super().train(mode)
        self._module.training = mode
        return self

    def bare(self) -> nn.Module:
        """Return the foreign module, whose features nobody takes note of any more."""
        for hook in self._hooks:
            hook.remove()
        return self._module

    @property
    def _module(self) -> nn.Module:
        module: nn.Module = self.__dict__["_foreign"]
        return module

    def _probe(self, shape: tuple[int, ...], reference: str) -> None:
        """Run one sample through the module to learn what it returns and which nn.Linear comes last."""
        called: list[str] = []
        hooks = [
            child.register_forward_hook(lambda *_, name=name: called.append(name))
            for name, child in self._module.named_modules()
            if isinstance(child, nn.Linear)
        ]
        self.eval()
        try:
            with torch.no_grad():
                output, self.tokens = _tried(self._module, shape, self.task)
        finally:
            for hook in hooks:
                hook.remove()
            self.train()
        self._pair = isinstance(output, tuple) and len(output) == 2
        self._whole = not called and not self._pair and not self.task.classes
        if not self._pair and (not isinstance(output, Tensor) or not (called or self._whole)):
            raise BadValue(
                "--model", reference, "a forward that returns (features, logits), or logits of an nn.Linear"
            )
        self._name_head(called[-1] if called else "")
        with torch.no_grad():
            self.eval()
            self.features = self(self.task.example(shape, tokens=self.tokens)[0])[0].shape[1]
            self.train()

    def _name_head(self, name: str) -> None:
        self.head_name = name
        if not self._pair and not self._whole:
            head = self._module.get_submodule(name)
            taken = head.register_forward_pre_hook(
                lambda _, inputs: self._seen.__setitem__("features", inputs[0])
            )
            self._hooks.append(taken)
