"""fl-lab new: a package with a plug-in of one's own to begin with, of any kind."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from edgeflock.common import listing
from edgeflock.common.command import extras
from edgeflock.common.errors import UnknownName
from edgeflock.common.plugins.loading import installed
from edgeflock.lab.new.package import KINDS, NewPackage


def _taken(kind: str) -> list[str]:
    known = {
        "method": listing.methods,
        "model": listing.models,
        "task": listing.tasks,
        "dataset": listing.datasets,
        "partition": listing.partitions,
        "transform": _transforms,
    }
    return [name.partition(":")[0] for name in known[kind]()]


def _transforms() -> list[str]:
    from edgeflock.common.datasets.kit import augment  # brings torch

    return [*augment.own(), *installed("transforms")]


def _kinds(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kind", metavar="|".join(KINDS), shell_complete=_kinds)
@click.argument("name", metavar="NAME")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Its folder.  [default: fl-NAME]")
def new(kind: str, name: str, out: Path | None) -> int:
    """Write a package with a plug-in NAME: its code, its entry point, and tests that pass.

    The code is short and works: change it into yours.
    """
    if kind not in KINDS:
        raise UnknownName("kind of plug-in", kind, KINDS)
    package = NewPackage(kind, name)
    package.check(_taken(kind))
    folder = out or Path(package.folder)
    for path in package.write(folder):
        click.echo(path)
    line = shlex.join([*extras.installer(), "-e", str(folder)])
    click.echo(f"next: {line}, pytest {folder}, {package.trial}")
    return 0
