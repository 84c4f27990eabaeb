"""The models by name, initialised from the run's seed: the modules of `models/` but the kit, and plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

import torch

from edgeflock.common import models, seeds
from edgeflock.common.errors import BadValue, UnknownName, UsageError
from edgeflock.common.models.kit.arguments import parse
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt, call, callable_of, check_outputs, load_custom, probe
from edgeflock.common.plugins import loading
from edgeflock.common.plugins.loading import installed
from edgeflock.common.run import CUSTOM, ModelDescription
from edgeflock.common.tasks.classification import TASK
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.common.tasks.kit.base import LearningTask
from edgeflock.common.tuning import adapters, parts
from edgeflock.common.tuning.tuning import NOTHING, Tuning

_KIT = "kit"


def names() -> list[str]:
    """Return the names of the package's own models, sorted."""
    found = [module.name for module in pkgutil.iter_modules(models.__path__) if module.name != _KIT]
    return sorted(name.replace("_", "-") for name in found)


def build_net(model: ModelDescription, seed: int, own: str | None = None, tuning: Tuning = NOTHING) -> Net:
    """Return the model of a run with the run's initial parameters; `own` is the operator's `--model`.
    What is not trained of it is frozen.

    Raises UnknownName, BadValue, or UsageError if the run needs a model of the operator's own.
    """
    shape, classes, arguments = model.input_shape, model.classes, model.arguments
    task = tasks.load(model.task)(classes)
    if model.name != CUSTOM:
        net = build(model.name, input_shape=shape, classes=classes, arguments=arguments, seed=seed, task=task)
    elif own is None:
        raise UsageError("this run has a model of its own: name yours with --model package.module:factory")
    else:
        net = build_custom(own, input_shape=shape, classes=classes, arguments=arguments, seed=seed, task=task)
    return tuned(net, tuning, tuple(shape), seed)


def tuned(net: Net, tuning: Tuning, shape: tuple[int, ...] = (), seed: int = 0) -> Net:
    """Say of a model what is frozen, what has adapters and what clients keep, in place. Raises BadValue."""
    adapter = adapters.parse(tuning.adapter)
    if tuning.train:
        parts.train(net, tuning.train)
    elif adapter is not None:
        net.requires_grad_(False)
    parts.thaw(net, tuning.keep_local)
    if adapter is not None:
        with _seeded(seeds.derive(seed, "adapter")):
            adapters.attach(net, adapter, net.task.example(shape, tokens=net.tokens)[0])
    if tuning.keep_local:
        net.kept = parts.kept(net, tuning.keep_local)
        net.constant = net.constant - net.kept  # what two steps have not changed others may
    net.still = parts.still(net)
    return net


def known() -> list[str]:
    """Return the names of the package's own models and of plug-ins' ones."""
    return [*names(), *installed("models")]


def find(name: str) -> ModuleType:
    """Return the module of that model, one of the package. Raises UnknownName."""
    if name not in names():
        raise UnknownName("model", name, known())
    return importlib.import_module(f"{models.__name__}.{name.replace('-', '_')}")


def build(
    name: str,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    arguments: Mapping[str, str] | None = None,
    seed: int,
    task: LearningTask | None = None,
) -> Net:
    """Return the model of that name with initial parameters that are a function of the arguments alone.

    Raises UnknownName or BadValue for names, arguments, input shapes and tasks that do not fit, PluginError
    for a plug-in that does not.
    """
    if name not in names() and name in known():
        return _of_plugin(name, tuple(input_shape), task or TASK(classes), dict(arguments or {}), seed)
    module = find(name)
    values = parse(getattr(module, "ARGUMENTS", {}), arguments or {})
    _check_classes(classes)
    net = _initialise(lambda: module.make(tuple(input_shape), classes, **values), seed)
    assert isinstance(net, Net)
    net.task = task or TASK(classes)
    if net.tasks and net.task.name not in net.tasks:
        raise BadValue("--model", name, f"for --task {net.task.name} another model: it is for {net.tasks[0]}")
    if not isinstance(net.task, TASK):  # for classes each of them is made
        probe(net, tuple(input_shape))
        check_outputs(net, tuple(input_shape), name)
    return net


def _of_plugin(
    name: str, shape: tuple[int, ...], task: LearningTask, texts: dict[str, str], seed: int
) -> Net:
    factory = callable_of(loading.find("models", name, object), name)
    _check_classes(task.outputs)
    return _initialise(
        lambda: adapt(call(factory, shape, task.outputs, texts, name), shape, name, task), seed
    )


def build_custom(
    reference: str,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    arguments: Mapping[str, str] | None = None,
    seed: int,
    task: LearningTask | None = None,
) -> Net:
    """Return the user's own model, made by `package.module:factory`; the arguments reach it as texts.

    Only for references from the operator's own command line, never from the wire.
    """
    factory = load_custom(reference)
    _check_classes(classes)
    shape, texts, known = tuple(input_shape), dict(arguments or {}), task or TASK(classes)

    def make() -> Net:
        return adapt(call(factory, shape, classes, texts, reference), shape, reference, known)

    return _initialise(make, seed)


def _check_classes(classes: int) -> None:
    if classes < 1:
        raise BadValue("classes", classes, "a whole number >= 1")


def _initialise(make: Callable[[], Net], seed: int) -> Net:
    with _seeded(seeds.derive(seed, "model")):
        return make()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Run a block with torch's global generator at a seed, and leave the generator as it was."""
    with seeds.GLOBAL:  # layers draw their initial values from torch's generator
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(before)
