"""fl-lab track, fl-lab tensorboard: a run's figures for programs that track runs, also while it goes on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command import extras
from edgeflock.common.errors import UsageError
from edgeflock.lab.export.feed import Following, write
from edgeflock.server.journal.reader import Feed, require

PLACE = Path("report")
# name: where its writer stands, called with the run directory and a folder of its own
_TRACKERS = {
    "mlflow": "edgeflock.lab.export.mlflow:MlflowRun",
    "tensorboard": "edgeflock.lab.export.tensorboard:EventFiles",
    "wandb": "edgeflock.lab.export.wandb:WandbRun",
}


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what all that write a run's figures have in common."""
    marks = (
        click.argument("run", type=click.Path(path_type=Path), metavar="RUN"),
        click.option("--follow", is_flag=True, help="Go on with every new round until the run has ended."),
        click.option(
            "--attached", is_flag=True, hidden=True, help="Follow only as long as standard input is open."
        ),
    )
    for mark in reversed(marks):
        command = mark(command)
    return command


@click.command()
@click.argument("tracker", type=click.Choice(sorted(_TRACKERS)))
@_options
def track(tracker: str, run: Path, follow: bool, attached: bool) -> int:
    """Write options, rounds, evaluations, costs and the model of the run directory RUN for MLflow and others.

    Called again it writes only what is new. MLflow and Weights & Biases are told where to by their own
    variables, such as MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, WANDB_MODE and WANDB_PROJECT.
    """
    extras.require(f"fl-lab track {tracker}", tracker)
    return _write(tracker, run, run / PLACE / tracker, "a folder for it", follow=follow, attached=attached)


@click.command()
@_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Where to.  [default: RUN/{PLACE / 'tensorboard'}]",
)
def tensorboard(run: Path, follow: bool, attached: bool, out: Path | None) -> int:
    """Write rounds, evaluations and costs of the run directory RUN for TensorBoard.

    Called again it writes only what is new.
    """
    extras.require("this command", "tensorboard")
    place = out or run / PLACE / "tensorboard"
    return _write("tensorboard", run, place, "--out", follow=follow, attached=attached)


def _write(tracker: str, run: Path, place: Path, label: str, *, follow: bool, attached: bool) -> int:
    require(run)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{label} {str(place)!r} cannot be made: {error.strerror}") from None
    patience = Following(attached) if follow else None  # signals are heard from here on
    module, _, name = _TRACKERS[tracker].partition(":")
    with (
        closing(getattr(importlib.import_module(module), name)(run, place)) as made,
        closing(Feed(run, made.cursor)) as feed,
    ):
        count = write(feed, made, patience)
        click.echo(f"{count} new scalars in {made.words}")
    return 0
