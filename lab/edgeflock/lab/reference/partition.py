"""fl-lab partition: who would hold what, as a table, a drawing in the terminal, JSON or a picture."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue

PICTURES = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before any work is done."""
    extras.require("--draw", "matplotlib")
    if path.suffix.lower() not in PICTURES:
        raise BadValue("--draw", str(path), f"a file name ending in {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise BadValue("--draw", str(path), "a file in a folder that exists")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--dataset", "name", default="digits", metavar="NAME", help="Data set, see fl-lab datasets.")
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where its files lie.  [default: ~/.cache/edgeflock]",
)
@click.option("--partition", "scheme", default="iid", metavar="SCHEME", help="As in dirichlet:0.5.")
@click.option("--clients", type=click.IntRange(1, 100_000), default=4, help="Number of shards.")
@click.option("--seed", type=click.IntRange(0), default=0, help="The run's seed.")
@click.option("--samples-per-client", type=click.IntRange(0), default=0, help="0: as many as there are.")
@click.option(
    "--draw", type=click.Path(path_type=Path), metavar="FILE", help="Write a picture (.png, .svg, .pdf)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def partition(
    name: str,
    data_root: Path | None,
    scheme: str,
    clients: int,
    seed: int,
    samples_per_client: int,
    draw: Path | None,
    as_json: bool,
) -> None:
    """Show how a data set is cut into shards: samples per client and class."""
    from edgeflock.common.datasets.kit import registry as datasets
    from edgeflock.common.plugins.loading import named
    from edgeflock.lab.reference import partition_chart
    from edgeflock.lab.reference.partition_rows import describe

    if draw:
        check_picture(draw)
    found = describe(
        datasets.load(named(name), data_root),
        partition=named(scheme),
        clients=clients,
        seed=seed,
        samples_per_client=samples_per_client,
    )
    if draw:
        partition_chart.draw(found, draw)
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        partition_chart.show(found)
