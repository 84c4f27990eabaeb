"""fl-lab events: the story of a run, in sentences or as JSON lines, also while it goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from edgeflock.server.console import sentences
from edgeflock.server.journal.reader import Event, Feed, require

_INTERVAL_S = 0.2


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on with every new event until the run has ended.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="CURSOR", help="Begin behind this event."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with all its fields.")
def events(run: Path, follow: bool, after: int, as_json: bool) -> int:
    """Print the story of the run in RUN, a run directory: who came and went, what each round came to.

    Times are UTC.
    """
    tell = line if as_json else sentences.line
    feed = Feed(require(run), after)
    try:
        while True:
            new = feed.read()
            for event in new:
                click.echo(tell(event))
            if not follow or (new and new[-1].name == "run_ended"):
                return 0
            time.sleep(_INTERVAL_S)
    finally:
        feed.close()


def line(event: Event) -> str:
    """Return one event as one line of JSON."""
    return json.dumps({"cursor": event.cursor, "at": event.at, "event": event.name, **event.fields})
