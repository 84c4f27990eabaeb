"""A saved model: a safetensors file that says how to build it; `load` makes of it something that predicts."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from edgeflock.common.datasets.kit.base import Part, Scaling
from edgeflock.common.datasets.kit.own import is_scaled
from edgeflock.common.errors import BadData, BadValue, MissingData, UsageError
from edgeflock.common.foreign import foreign
from edgeflock.common.models.kit.registry import build_net
from edgeflock.common.payload import tensorheader
from edgeflock.common.plugins.loading import allow, is_reference
from edgeflock.common.run import CUSTOM, ModelDescription

if TYPE_CHECKING:
    from edgeflock.common.models.kit.base import Net

MODEL_FILE = "model.safetensors"
BESIDE_FILE = "model.json"  # beside the model of a run, whose bytes are its numbers alone: what it is of
CURRENT = "current"  # the link in a folder of versions
_AT_A_TIME = 256  # samples: memory does not grow with how many are asked for
_TASK = "classification"  # of a file that names none


@dataclass(frozen=True)
class Recipe:
    """What it takes to build a model again and to give it samples as it was trained on."""

    model: ModelDescription
    scaling: Scaling = field(default_factory=Scaling)  # of bytes; floats are taken as they are
    own: str = ""  # package.module:factory of a model of the user's own, as this device knows it

    def metadata(self) -> dict[str, str]:
        """Return it as a file says it."""
        model = self.model
        arguments = (f"{name}={value}" for name, value in model.arguments.items())
        own = {"own_model": self.own} if self.own else {}
        return {
            "model": model.name,
            "model_arguments": shlex.join(arguments),
            "input_shape": ",".join(map(str, model.input_shape)),
            "classes": str(model.classes),
            "task": model.task,
            "scaling": json.dumps(asdict(self.scaling)),
            **own,
        }

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Recipe:
        """Return what a file says. Raises ValueError or KeyError if it says too little."""
        sides = (int(side) for side in metadata["input_shape"].split(",") if side)
        words = (word.partition("=") for word in shlex.split(metadata.get("model_arguments", "")))
        arguments = {name: value for name, _, value in words}
        task = metadata.get("task", _TASK)
        model = ModelDescription(metadata["model"], tuple(sides), int(metadata["classes"]), arguments, task)
        told = json.loads(metadata.get("scaling", "{}"))
        scaling = Scaling(
            float(told.get("over", 255.0)), tuple(told.get("mean", ())), tuple(told.get("std", ()))
        )
        return cls(model, scaling, metadata.get("own_model", ""))


class SavedModel:
    """A model that was loaded: called with samples it predicts, one answer for each.

    The answer is the task's: the class of a classification, of every pixel of a segmentation, the most
    likely next token, yes or no for each label, and otherwise the numbers that the model gives.
    """

    def __init__(self, net: Net, recipe: Recipe, about: Mapping[str, str]) -> None:
        self.net = net.eval()  #: the module: samples in, (features, outputs) out
        self.about = dict(about)  #: what the file says of itself: run, round, model, digest ...
        self.recipe = recipe

    def __call__(self, x: ArrayLike | Tensor) -> Tensor:
        """Predict: samples, or one sample, as they were given to the training; bytes are scaled likewise."""
        samples, alone = self._samples(x)
        outputs = self._outputs(samples)
        own = self.net.answer(outputs)
        found = self.net.task.answer(outputs) if own is None else own
        return found[0] if alone else found

    def outputs(self, x: ArrayLike | Tensor) -> Tensor:
        """Return what the model itself gives, such as a number for every class (before any softmax)."""
        samples, alone = self._samples(x)
        found = self._outputs(samples)
        return found[0] if alone else found

    @torch.inference_mode()
    def _outputs(self, samples: NDArray[Any]) -> Tensor:
        parts = []
        for start in range(0, max(len(samples), 1), _AT_A_TIME):
            part = self._numbers(samples[start : start + _AT_A_TIME])
            with foreign("the model"):
                parts.append(self.net(part)[1])
        return torch.cat(parts).clone()

    def _samples(self, x: ArrayLike | Tensor) -> tuple[NDArray[Any], bool]:
        """Return samples in the model's shape, and whether it was one alone. Raises BadData."""
        given = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
        shape = self.recipe.model.input_shape
        if self.net.task.tokens and given.ndim in (1, 2) and given.size:
            shape = given.shape[-1:]  # as long a text as the model itself takes
        for found, alone in ((given, False), (given[None], True)):
            if (placed := _placed(found, shape)) is not None:
                if placed.dtype.kind not in "fiub":
                    raise BadData(f"x is {placed.dtype}, this model takes numbers")
                return placed, alone
        wanted = " x ".join(map(str, ("samples", *shape)))
        raise BadData(f"x has the shape {'x'.join(map(str, given.shape)) or '()'}, this model takes {wanted}")

    def _numbers(self, x: NDArray[Any]) -> Tensor:
        """Return a few samples as the model takes them."""
        tokens = self.net.tokens
        if is_scaled(x, self.net.task, tokens=tokens):
            x = self.recipe.scaling.of(Part(x, np.zeros(len(x), np.int64))).x
        return self.net.task.inputs(x if x.flags.writeable else x.copy(), tokens=tokens)

    def __repr__(self) -> str:
        said = [f"{name} {self.about[name]}" for name in ("model", "method", "round") if self.about.get(name)]
        return f"<SavedModel: {', '.join(said)}>"


def load(place: str | os.PathLike[str], model: str | None = None, task: str | None = None) -> SavedModel:
    """Load a model: the folder that `fl-client --save-model` keeps, a run's, or a file of them or of `fl-lab
    export`.

    `model` and `task` are `package.module:NAME` of your own ones: a file alone never makes anything be
    imported. Raises an error with a sentence.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not isinstance(place, (str, os.PathLike)):
        raise BadValue("place", place, "a folder or a file, as a text or a Path")
    path = _file(Path(place))
    about = _about(path)
    recipe = _recipe(path, about)
    try:
        _allow_task(path, recipe.model.task, task)
        net = build_net(recipe.model, 0, _own(path, recipe, model))
        tensors = load_file(path)
        with foreign(f"filling the model of {path}"):
            _fill(net, tensors)
    except OSError as error:
        raise MissingData(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise BadData(f"{path} is no whole safetensors file: {error}") from None
    return SavedModel(net, recipe, about)


def recipe_of(path: Path) -> Recipe:
    """Return what a file says of how its model is built. Raises MissingData or BadData with a sentence."""
    return _recipe(path, _about(path))


def _about(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            said = dict(tensorheader.parse(tensorheader.read(file)).metadata)
        return said if "model" in said else {**_said_beside(path), **said}
    except OSError as error:
        raise MissingData(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        other = "" if path.suffix == ".safetensors" else ", the only format that is read here"
        raise BadData(f"{path} {error}{other}") from None


def _said_beside(path: Path) -> dict[str, str]:
    """Return what a run says of its model; nothing if the file is none of a run's."""
    try:
        found = json.loads((path.parent / BESIDE_FILE).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _file(place: Path) -> Path:
    if not place.is_dir():
        if place.exists():
            return place
        raise MissingData(f"there is no {place}")
    for found in (place / CURRENT / MODEL_FILE, place / MODEL_FILE):
        if found.is_file():
            return found
    raise MissingData(
        f"{place} holds no model: allowed is the folder of fl-client --save-model, a run that is over, "
        "or a .safetensors file"
    )


def _recipe(path: Path, about: Mapping[str, str]) -> Recipe:
    try:
        return Recipe.of(about)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise BadData(
            f"{path} does not say which model it is of: "
            "one that fl-lab export RUN --out FILE.safetensors or fl-client --save-model has written does"
        ) from None


def _own(path: Path, recipe: Recipe, given: str | None) -> str | None:
    if given is not None and recipe.model.name != CUSTOM:
        raise BadValue("model", given, f"none: {path} is of the model {recipe.model.name}")
    if given is None and recipe.model.name == CUSTOM:
        example = recipe.own or "package.module:factory"
        raise UsageError(f"{path} is of a model of your own: name it, load(..., model={example!r})")
    return given


def _allow_task(path: Path, named: str, given: str | None) -> None:
    if given is not None and given != named:
        raise BadValue("task", given, f"{named!r}, or nothing: {path} is of that task")
    if given is None and is_reference(named):
        raise UsageError(f"{path} is of a task of your own: name it, load(..., task={named!r})")
    if is_reference(named):
        allow(named, "task")


def _fill(net: Net, tensors: Mapping[str, Tensor]) -> None:
    """Give a model its numbers; a buffer that is not in the file stays as it was made."""
    own = net.state_dict()
    needed = {name for name, _ in net.named_parameters()} - tensors.keys()
    wrong = [name for name, tensor in tensors.items() if name not in own or own[name].shape != tensor.shape]
    if differing := [*sorted(needed), *wrong]:
        raise BadData(f"the file and the model that it names differ in {differing[0]}")
    net.load_state_dict(dict(tensors), strict=False)


def _placed(x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """Return samples in a shape, None if they have another; a channel of one may be missing or too many, and
    channels may come last."""
    if _plain(x.shape[1:]) == _plain(shape):
        return x.reshape(-1, *shape)
    if x.ndim == 4 and (x.shape[3], *x.shape[1:3]) == shape:
        return np.moveaxis(x, 3, 1)
    return None


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
