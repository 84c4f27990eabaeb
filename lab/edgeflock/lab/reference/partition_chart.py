"""A partition drawn: characters in a terminal, bubbles or a heat map in a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeflock.common.command import extras
from edgeflock.lab.plots import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgeflock.lab.reference.partition_rows import PartitionRows, ShardRow

COUNTED = 12  # up to so many classes are shown as numbers, more as shades
BAR = 10  # characters of the longest bar: ten classes fit into 80 columns
SHADES = "·░▒▓█"


def show(found: PartitionRows) -> None:
    """Print the table, with colours if a person looks at it and rich is there."""
    if not (sys.stdout.isatty() and show_in_colour(found)):
        click.echo("\n".join(lines(found)))


def lines(found: PartitionRows) -> list[str]:
    """Return the table as plain text."""
    names = (
        [f"{label:>5}" for label in range(found.classes)] if found.classes <= COUNTED else ["  classes 0 ..."]
    )
    head = f"{'client':>6} {'samples':>8}  {'':{BAR}} {''.join(names)}"
    return [found.title, head, *(_line(found, row) for row in found.rows)]


def shade(count: int, most: int) -> str:
    """Return the character for a count: a dot for none, darker for more."""
    return SHADES[0] if count == 0 else SHADES[1 + min(3, int(4 * count / most - 1e-9))]


def _line(found: PartitionRows, row: ShardRow) -> str:
    if found.classes <= COUNTED:
        cells = "".join(f"{count:>5}" for count in row.classes)
    else:
        most = max(1, *(count for other in found.rows for count in other.classes))
        cells = "  " + "".join(shade(count, most) for count in row.classes)
    return f"{row.client:>6} {row.samples:>8}  {_bar(found, row):{BAR}} {cells}"


def _bar(found: PartitionRows, row: ShardRow) -> str:
    longest = max(1, *(other.samples for other in found.rows))
    return "█" * (-(-BAR * row.samples // longest))


def show_in_colour(found: PartitionRows) -> bool:
    """Print the table with the classes as a heat map; return whether rich is there."""
    if not extras.installed("rich"):
        return False
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    title, head, *_ = lines(found)
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(Text(head, style="dim"), soft_wrap=True)
    most = max(1, *(count for row in found.rows for count in row.classes))
    for row in found.rows:
        text = Text(f"{row.client:>6} {row.samples:>8}  ")
        text.append(f"{_bar(found, row):{BAR}} ", style="cyan")
        wide = found.classes <= COUNTED
        text.append("" if wide else "  ")
        for count in row.classes:
            if wide:
                text.append(f"{count:>5}", style=_background(count, most))
            else:
                text.append(shade(count, most), style="blue" if count else "bright_black")
        console.print(text, soft_wrap=True)
    return True


def _background(count: int, most: int) -> str:
    if count == 0:
        return "bright_black"
    share = count / most
    ink = "white" if share > 0.5 else "black"
    ends = bytes.fromhex(theme.HUES[0][0].removeprefix("#"))
    red, green, blue = (round(255 + share * (end - 255)) for end in ends)
    return f"{ink} on rgb({red},{green},{blue})"


def draw(found: PartitionRows, path: Path) -> None:
    """Write a picture, as reports look: sizes of the shards above, classes of every client below."""
    from edgeflock.lab.plots import matrices

    clients = len(found.rows)
    height = 1.6 + min(9.0, max(2.2, 0.3 * found.classes))
    with theme.styled():
        made = theme.figure(min(14.0, max(6.0, 2.2 + 0.32 * clients)), height)
        sizes, classes = made.subplots(2, 1, sharex=True, height_ratios=[1.1, height - 1.6])
        sizes.bar(range(clients), [row.samples for row in found.rows], color=matrices.BLUE, width=0.8)
        sizes.set_ylabel("samples")
        sizes.grid(visible=False, axis="x")
        sizes.tick_params(labelbottom=False)
        matrices.held(classes, [row.classes for row in found.rows])
        made.suptitle(found.title, fontsize=10, x=0.01, ha="left")
        _save(made, path)


def _save(made: Figure, path: Path) -> None:
    if path.suffix.lower() == ".svg":
        path.write_text(theme.standing_alone(theme.svg(made)), "utf-8")
    elif path.suffix.lower() == ".png":
        theme.png(made, path)
    else:
        made.savefig(path, metadata={"CreationDate": None})
