"""fl-lab events: the story of a run, in sentences or as JSON lines, also while it goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import click

from edgeflock.common.command import streams
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
    tell = as_lines if as_json else sentences.lines
    with closing(Feed(require(run), after)) as feed:
        while True:
            over = feed.over()
            for words in tell(feed.read()):
                click.echo(words)
            if not follow or over or not streams.heard():
                return 0
            time.sleep(_INTERVAL_S)


def as_lines(events: Iterable[Event]) -> Iterator[str]:
    """Yield every event as one line of JSON."""
    for event in events:
        yield json.dumps({"cursor": event.cursor, "at": event.at, "event": event.name, **event.fields})
