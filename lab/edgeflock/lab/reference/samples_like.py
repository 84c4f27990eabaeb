"""What samples look like for whom a table is made: those of a data set, or of a shape that is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from edgeflock.common.errors import BadValue

_SHAPE = re.compile(r"[1-9]\d{0,5}(x[1-9]\d{0,5}){0,2}", re.ASCII)
CLASSES = 10  # of samples whose shape is written


@dataclass(frozen=True)
class SamplesLike:
    """One kind of input."""

    shape: tuple[int, ...]
    classes: int


def options(dataset: str) -> Callable[[Any], Any]:
    """Give a command the options that `found` reads; `dataset` is its default."""
    shown = [
        click.option("--dataset", default=dataset, show_default=True, metavar="NAME", help="As its samples."),
        click.option("--shape", metavar="CxHxW", help="As samples of this shape, in place of a data set's."),
        click.option("--classes", type=click.IntRange(1), help="So many.  [default: the data set's, 10]"),
        click.option("--model-arg", "arguments", multiple=True, metavar="KEY=VALUE", help="Of the model."),
    ]

    def added(command: Any) -> Any:
        for option in reversed(shown):
            command = option(command)
        return command

    return added


def found(dataset: str, shape: str | None, classes: int | None) -> SamplesLike:
    """Return what is asked for; files of a data set whose size is known need not be there."""
    if shape is not None:
        if not _SHAPE.fullmatch(shape):
            raise BadValue("--shape", shape, "whole numbers with x between them, such as 3x32x32 or 561")
        return SamplesLike(tuple(map(int, shape.split("x"))), classes or CLASSES)
    from edgeflock.common.datasets.kit import registry

    entry = registry.entries().get(dataset.partition(":")[0])
    size = entry.size if entry is not None else None
    if size is None:
        read = registry.load(dataset)
        return SamplesLike(read.input_shape, classes or read.classes)
    return SamplesLike(size.input_shape, classes or size.classes)


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Return --model-arg KEY=VALUE as a mapping. Raises BadValue."""
    for text in texts:
        if "=" not in text:
            raise BadValue("--model-arg", text, "KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)
