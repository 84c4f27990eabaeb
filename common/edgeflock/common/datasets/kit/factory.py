"""The user's own `package.module:factory`: called on the device that has it, and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from edgeflock.common.datasets.kit.base import Array
from edgeflock.common.datasets.kit.stored import Arrays, Items, MapStyle, Stored, as_array
from edgeflock.common.errors import BadData, NothingYet
from edgeflock.common.foreign import ForeignError, foreign
from edgeflock.common.plugins import loading

FLAG = "--data"
WANTED = "(x, y), x alone, (x, y, x_test, y_test), a dict with these names, a Dataset, or two of them"
_NAMES = ("x", "y", "x_test", "y_test")


def call(reference: str, client_id: str) -> Any:
    """Return what the factory makes for a client; it is given the client's id if it takes an argument.

    Raises BadValue if there is none, and BadData with file and line if it fails.
    """
    found = loading.load(reference, FLAG, "factory")
    if not callable(found):
        return found  # a Dataset or arrays by their name
    try:
        with foreign(f"{FLAG} {reference}"):
            return found(client_id) if _takes_one(found) else found()
    except ForeignError as error:
        raise BadData(str(error)) from error


def datasets(made: Any) -> tuple[tuple[object, int], ...]:
    """Return the Datasets that a factory has made, with their lengths; arrays are none."""
    found = made if isinstance(made, tuple) else (made,)
    return tuple((part, len(part)) for part in found) if all(map(_is_dataset, found)) else ()


def same(made: tuple[tuple[object, int], ...], before: tuple[tuple[object, int], ...]) -> bool:
    """Whether a factory has returned the very same Datasets once more, and none has grown."""
    pairs = zip(made, before, strict=False)
    alike = all(one is other and count == known for (one, count), (other, known) in pairs)
    return bool(made) and len(made) == len(before) and alike


def stored(where: str, made: Any) -> tuple[Stored, Stored | None]:
    """Return what a factory has made as a training and a test part. Raises BadData for anything else."""
    if isinstance(made, Mapping):
        return _named(where, made)
    if _is_dataset(made):
        return Items(where, made), None
    if isinstance(made, tuple) and len(made) == 2 and all(map(_is_dataset, made)):
        return Items(where, made[0]), Items(f"{where} (test)", made[1])
    if isinstance(made, tuple) and len(made) in (2, 4) and not any(map(_is_dataset, made)):
        return _named(where, dict(zip(_NAMES, made, strict=False)))
    if isinstance(made, np.ndarray | torch.Tensor):
        return _named(where, {"x": made})
    raise BadData(f"{where} returned {_kind(made)}, allowed are {WANTED}")


def arrays(where: str, x: Array, y: Array | None, key: str = "x") -> Arrays:
    """Return two arrays as samples. Raises BadData unless they are numbers, as many of both."""
    label = key.replace("x", "y")
    for name, array in ((key, x), (label, y)):
        if array is not None and array.dtype.kind not in "fiub":
            raise BadData(f"{where}: {name} is {array.dtype}, allowed are numbers")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise BadData(f"{where}: {key} has the shape {_shape(x)}, needed is samples x features or images")
    if y is None:
        y = np.zeros((len(x), 0), np.float32)
    if y.ndim == 0:
        raise BadData(
            f"{where}: {label} is {y.dtype} of shape (), needed is an array, a label for each sample"
        )
    if len(x) != len(y):
        raise BadData(f"{where}: {key} has {len(x)} samples and {label} {len(y)} labels")
    if len(x) == 0:
        raise NothingYet(f"{where}: {key} has no samples, needed is at least one")
    return Arrays(where, x, y)


def named(where: str, found: Mapping[str, Array]) -> tuple[Arrays, Arrays | None]:
    """Return arrays named x, y, x_test, y_test as a training and a test part; y may be missing in both."""
    if "x" not in found:
        held = ", ".join(sorted(map(str, found))) or "nothing"
        raise BadData(f"{where} has no array 'x', needed are x and y; it holds {held}")
    for one, other in (("x_test", "y_test"), ("y_test", "x_test")):
        if one in found and other not in found and (other == "x_test" or "y" in found):
            raise BadData(f"{where} has no array {other!r}, needed are {one} and {other}")
    train = arrays(where, found["x"], found.get("y"))
    if "x_test" not in found:
        return train, None
    test = arrays(where, found["x_test"], found.get("y_test"), "x_test")
    test.where = f"{where} (test)"
    if test.input_shape != train.input_shape:
        shapes = " and ".join("x".join(map(str, part.input_shape)) for part in (train, test))
        raise BadData(f"{where}: samples of x and of x_test have different shapes, {shapes}")
    return train, test


def _named(where: str, made: Mapping[str, Any]) -> tuple[Arrays, Arrays | None]:
    if other := sorted(str(name) for name in made if name not in _NAMES):
        raise BadData(f"{where} returned a dict with {', '.join(other)}, allowed are {', '.join(_NAMES)}")
    wanted = {name: as_array(f"{where}: {name}", made[name]) for name in _NAMES if made.get(name) is not None}
    return named(where, wanted or dict(made))


def _is_dataset(made: Any) -> bool:
    plain = isinstance(made, np.ndarray | torch.Tensor | Sequence | Mapping)
    return not plain and isinstance(made, MapStyle)


def _kind(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {len(made)} ({', '.join(type(part).__name__ for part in made)})"
    lacks = " without __len__" if hasattr(made, "__iter__") and not hasattr(made, "__len__") else ""
    return f"{type(made).__name__}{lacks}" if made is not None else "nothing"


def _takes_one(factory: Any) -> bool:
    """Whether it must be given an argument, or has one named client_id."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # one in C tells nobody
        return False
    open_ones = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return bool(open_ones) and (
        open_ones[0].default is inspect.Parameter.empty or open_ones[0].name == "client_id"
    )


def _shape(array: Array) -> str:
    return "x".join(map(str, array.shape)) or "()"
