"""fl-lab methods, models, tasks, datasets: what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from edgeflock.common import listing
from edgeflock.common.errors import UnknownName, UsageError
from edgeflock.common.plugins.loading import is_reference, named
from edgeflock.lab.reference import plugins_list, samples_like


def _methods(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in listing.methods() if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_methods)
@click.option("--costs", is_flag=True, help="What each adds to a client's round of FedAvg, as counted here.")
@click.option("--model", default="lenet5", show_default=True, metavar="NAME", help="--costs: of this model.")
@samples_like.options("mnist")
@click.option("--steps", type=click.IntRange(1), default=12, show_default=True, help="--costs: K of a round.")
@click.option("--batch-size", type=click.IntRange(1), default=50, show_default=True, help="--costs: M.")
@click.option("--samples", type=click.IntRange(1), default=600, show_default=True, help="--costs: n, held.")
def methods(name: str | None, costs: bool, **told: Any) -> int:
    """List the methods, or the options of the method NAME, or with --costs what they cost."""
    from edgeflock.methods.kit import registry as known
    from edgeflock.server.start.describe import describe_method

    if costs:
        click.echo("\n".join(_costs(name, **told)))
    elif name:
        click.echo(describe_method(named(name)))
    else:
        for entry in known.names():
            click.echo(f"{entry:<14} {known.load(entry).summary}")
        for line in plugins_list.lines("methods", lambda name: known.load(name).summary):
            click.echo(line)
    return 0


def _costs(
    name: str | None,
    *,
    model: str,
    dataset: str,
    shape: str | None,
    classes: int | None,
    arguments: tuple[str, ...],
    **work: int,
) -> Iterator[str]:
    """Yield what a round costs with each method, or that of the name."""
    from edgeflock.common.models.kit import registry
    from edgeflock.lab.reference import method_costs

    like = samples_like.found(dataset, shape, classes)
    net = registry.build(
        model,
        input_shape=like.shape,
        classes=like.classes,
        arguments=samples_like.pairs(arguments),
        seed=0,
    )
    return method_costs.lines(name, model, method_costs.values(net, like.shape, like.classes, **work))


def _models(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in listing.models() if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_models)
@samples_like.options("cifar10")
@click.option("--train", default="", metavar="PATTERNS", help="As of fl-server: what travels, what stays.")
@click.option("--adapter", default="", metavar="lora:rank=N", help="Likewise.")
@click.option("--keep-local", default="", metavar="PATTERNS", help="Likewise.")
def models(
    name: str | None,
    dataset: str,
    shape: str | None,
    classes: int | None,
    arguments: tuple[str, ...],
    **tuning: str,
) -> int:
    """List the models, or the model NAME, with their sizes for samples like these, and their arguments.

    With --train, --adapter or --keep-local, and of package.module:factory: what of it travels and what stays.
    """
    from edgeflock.common.models.kit import registry as known
    from edgeflock.common.tuning.tuning import Tuning
    from edgeflock.lab.reference import models_list

    if name and not is_reference(name) and name not in known.known():
        raise UnknownName("model", name, known.known())
    if any(tuning.values()) or (name and is_reference(name)):
        if not name:
            raise UsageError("--train, --adapter and --keep-local are of one model: name it")
        like, given = samples_like.found(dataset, shape, classes), samples_like.pairs(arguments)
        click.echo("\n".join(models_list.shares(name, like.shape, like.classes, given, Tuning(**tuning))))
        return 0
    if not name and arguments:
        raise UsageError("--model-arg is an argument of one model: name it, as in fl-lab models resnet18")
    like, given = samples_like.found(dataset, shape, classes), samples_like.pairs(arguments)
    names = [name] if name else known.known()
    click.echo("\n".join(models_list.lines(names, like.shape, like.classes, given)))
    return 0


@click.command()
def tasks() -> int:
    """List the tasks: what the labels are, and the metrics, the first of which a run is judged by."""
    from edgeflock.common.tasks.kit.registry import load, names

    for name in names():
        click.echo(f"{name:<16} {load(name).summary}")
    for line in plugins_list.lines("tasks", lambda name: load(name).summary, width=16):
        click.echo(line)
    return 0


@click.command()
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to look for their files.  [default: ~/.cache/edgeflock]",
)
def datasets(data_root: Path | None) -> int:
    """List the data sets: shape, classes, sizes, and whether they are here."""
    from edgeflock.common.datasets.kit import registry as known
    from edgeflock.lab.reference.datasets_list import lines

    click.echo("\n".join(lines(known.entries(), known.data_root(data_root))))
    for line in plugins_list.lines("datasets", known.about):
        click.echo(line)
    return 0
