"""fl-lab methods, models, datasets: what there is."""

from __future__ import annotations

from pathlib import Path

import click

from edgeflock.common import listing


def _methods(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in listing.methods() if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_methods)
def methods(name: str | None) -> int:
    """List the methods, or the options of the method NAME."""
    from edgeflock.methods.kit import registry as known
    from edgeflock.server.start.describe import describe_method

    if name:
        click.echo(describe_method(name))
    else:
        for entry in known.names():
            click.echo(f"{entry:<14} {known.load(entry).summary}")
    return 0


@click.command()
def models() -> int:
    """List the models with their arguments (--model-arg KEY=VALUE)."""
    from edgeflock.common.models.kit import registry as known

    for name in known.names():
        module = known.find(name)
        arguments = getattr(module, "ARGUMENTS", {}).items()
        click.echo(f"{name:<14} {(module.__doc__ or '').partition(chr(10))[0].removeprefix(f'{name}: ')}")
        for key, argument in arguments:
            click.echo(f"    {key}={argument.default}  {argument.allowed}")
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
    return 0
