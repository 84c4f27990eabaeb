"""fl-lab paper, as it is asked for: the list of papers, or one of them run and told of."""

from __future__ import annotations

import re
from pathlib import Path

import click

from edgeflock.common.command import signals
from edgeflock.common.errors import BadValue

_SEEDS = re.compile(r"[1-9]\d{0,3}|\d{1,9}-\d{1,9}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False, metavar="[NAME|FILE.toml]")
@click.option(
    "--seeds", metavar="N|A-B", help="So many seeds, 0, 1, 2 ..., or those from A to B.  [the file's]"
)
@click.option("--quick", is_flag=True, help="The small version, minutes: it shows that it works, no verdict.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where runs and tables lie.  [runs/paper-NAME]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Cells at a time.  [what has a core for every process]",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with data sets in their official formats.",
)
@click.option(
    "--keep", is_flag=True, help="Keep the result beside the paper's file, in results/, for docs/papers.md."
)
@click.option("--show", is_flag=True, help="Show the kept result, and run nothing.")
def paper(
    name: str | None,
    seeds: str | None,
    quick: bool,
    out: Path | None,
    jobs: int | None,
    data_root: Path | None,
    keep: bool,
    show: bool,
) -> int:
    """Run a table or a figure of a paper, and show it beside the paper's own, with a verdict; or list them.

    Started again it keeps the cells that have finished and goes on with the others.
    """
    if name is None:
        from edgeflock.lab.papers.listing import lines

        for line in lines(data_root):
            click.echo(line)
        return 0
    if seeds is not None and not _SEEDS.fullmatch(seeds):
        raise BadValue("--seeds", seeds, "a number from 1, or the first and the last such as 10-12")
    from edgeflock.lab.papers import telling
    from edgeflock.lab.papers.holding import AskedRuns, hold, seeds_of
    from edgeflock.lab.papers.paper import read_paper
    from edgeflock.lab.papers.shelf import find, is_packaged

    path = find(name)
    asked_of = read_paper(path)
    if show:
        return telling.show(asked_of, path)
    usual = asked_of.quick_seeds if quick else asked_of.seeds
    out = out or Path("runs") / f"paper-{asked_of.name}{'-quick' if quick else ''}"
    asked = AskedRuns(tuple(seeds_of(seeds, usual)), quick, out, jobs, data_root)
    if not asked.seeds:
        raise BadValue("--seeds", seeds, "a first seed that is not above the last")
    if keep and quick:
        raise BadValue("--keep", "with --quick", "a result of the whole version")
    if keep and is_packaged(path):
        raise BadValue("--keep", "of an installed package", "a paper's file of a checkout, or of your own")
    signals.on_leaving(signals.interrupt)
    held = hold(asked_of, asked)
    return telling.tell(asked_of, path, held, asked, keep=keep)
