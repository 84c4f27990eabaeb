"""fl-lab testbed, as it is asked for: what it works with is imported when it is used."""

from __future__ import annotations

from pathlib import Path

import click

from edgeflock.common.command import signals
from edgeflock.common.command.options import read_toml


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where runs and tables lie.  [runs/testbed-FILE]",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with data sets in their official formats.  [the file's]",
)
@click.option("--clean", is_flag=True, help="Take down what killed testbeds have left, and nothing else.")
def testbed(file: Path | None, out: Path | None, data_root: Path | None, clean: bool) -> int:
    """Hold a grid of runs on emulated devices, and show what each method takes there.

    Every device is an fl-client in a network namespace of its own, held to a share of a core; all are behind
    one half-duplex medium (docs/testbed.md). Needs root and /dev/net/tun. Started again it keeps the cells
    that have finished and goes on with the others. With [devices] external = true only servers are started,
    for real devices.
    """
    if clean:
        return _clean()
    if file is None:
        raise click.UsageError("Missing argument 'FILE.toml'.")
    table = read_toml(file)
    from edgeflock.lab.testbed.holding import Trial
    from edgeflock.lab.testbed.plan import make_plan

    plan = make_plan(table, str(file)).with_data(data_root)
    signals.on_leaving(signals.interrupt)
    name = file.stem if file.stem.startswith("testbed") else f"testbed-{file.stem}"
    trial = Trial(plan, out or Path("runs") / name)
    trial.run()
    return trial.tell()


def _clean() -> int:
    from edgeflock.lab.testbed import laying, owner

    laying.require()
    found = owner.clear()
    click.echo(f"taken down: {', '.join(found)}" if found else "there was nothing left of a testbed")
    return 0
