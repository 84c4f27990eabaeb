"""fl-lab features: how models of a run see its test samples, as maps of their features beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeflock.common.command import extras
from edgeflock.common.errors import UsageError
from edgeflock.lab import history

if TYPE_CHECKING:
    from edgeflock.lab.export.features import FeatureView
    from edgeflock.lab.history import History

_MOST = 12  # panels


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--round",
    "rounds",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="R",
    help="After which round, repeatable; it must be kept (--keep-every).  [default: the last]",
)
@click.option(
    "--client", "clients", multiple=True, metavar="NAME", help="Also this client's own model, repeatable."
)
@click.option(
    "--samples", type=click.IntRange(min=5), default=1000, show_default=True, help="Test samples on the map."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of samples and map.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where FILE.svg and FILE.png go.  [default: RUN/report/features]",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with data sets, if it is not where the run had it.",
)
def features(
    run: Path,
    rounds: tuple[int, ...],
    clients: tuple[str, ...],
    samples: int,
    seed: int,
    out: Path | None,
    data_root: Path | None,
) -> None:
    """Draw the features of test samples (what goes into the model's last layer) as t-SNE maps.

    A panel for the global model after each round, and for each client that is named. Distances between
    clouds and their sizes mean nothing in such a map, only who is near whom.
    """
    extras.require("a map of features", "matplotlib", "sklearn")
    found = history.read(run)
    if len(rounds or (0,)) * (1 + len(clients)) > _MOST:
        raise UsageError(f"at most {_MOST} maps fit into one picture")
    panels = list(_seen(found, rounds, clients, samples, seed, data_root))
    path = out.with_suffix("") if out is not None else run / "report" / "features"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _draw(panels, seed, path)
    except OSError as error:
        raise UsageError(f"--out {str(path)!r} cannot be written: {error.strerror or error}") from None
    for panel in panels:
        click.echo(f"{panel.title}: {panel.accuracy:.4f} of {len(panel.classes)} test samples")
    click.echo(f"{path}.svg and .png")


def _seen(
    found: History,
    rounds: Sequence[int],
    clients: Sequence[str],
    samples: int,
    seed: int,
    data_root: Path | None,
) -> Iterator[FeatureView]:
    """Yield what the models make of the samples: the global one after each round, then each client's."""
    from edgeflock.lab.export import features as made
    from edgeflock.lab.export.model import of_round, opened

    if not found.rounds:
        raise UsageError(f"{found.run_dir} has no committed round")
    kept = {client: made.kept_models(found, client) for client in clients}
    run = opened(found.run_dir, data_root)
    x, y = made.samples(run, samples, seed)
    for round in rounds or (found.rounds[-1].number,):
        yield made.seen(f"global model, round {round}", of_round(run, found.run_dir, round), x, y)
        for client in clients:
            own = made.as_of(kept[client], client, round)
            yield made.seen(f"{client}, round {own.round}", made.own_net(run, run.net(), own), x, y)


def _draw(panels: Sequence[FeatureView], seed: int, path: Path) -> None:
    from edgeflock.lab.export.features import mapped
    from edgeflock.lab.plots import theme
    from edgeflock.lab.plots.cloud import clouds

    classes = max(label for panel in panels for label in panel.classes) + 1
    with theme.styled():
        theme.save(clouds([mapped(panel, seed) for panel in panels], list(map(str, range(classes)))), path)
