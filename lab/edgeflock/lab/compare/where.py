"""Where the cells of a comparison run, as it is asked for: on this machine, or on those of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from edgeflock.common.command.kinds import size
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.cluster.asked import read_on

if TYPE_CHECKING:
    from edgeflock.lab.compare.away import Away

_OPTIONS: dict[str, tuple[Any, str, str]] = {
    "--on": (str, "ray[=HOST:PORT]", "Run the cells on the machines of a Ray cluster.  [default: here]"),
    "--cell-cpus": (
        click.FloatRange(min=0, min_open=True),
        "N",
        "On ray: cores of a cell.  [default: its processes]",
    ),
    "--cell-gpus": (
        click.FloatRange(min=0),
        "N",
        "On ray: GPUs of a cell, also a share of one.  [default: 0]",
    ),
    "--cell-memory": (
        str,
        "SIZE",
        "On ray: memory that a cell needs, such as 4GiB.  [default: not looked at]",
    ),
}
_FLAGS = {
    "--shared-out": "On ray: every node sees DIR, and runs lie there: one that is cut goes on elsewhere.",
    "--insecure": "On ray: join a cluster that takes commands from whoever reaches it.",
}


def parameters() -> list[click.Parameter]:
    """Return the options that say where."""
    valued = [
        click.Option([name], type=kind, metavar=metavar, help=words)
        for name, (kind, metavar, words) in _OPTIONS.items()
    ]
    return [*valued, *(click.Option([name], is_flag=True, help=words) for name, words in _FLAGS.items())]


@contextmanager
def place(
    on: str | None,
    cell_cpus: float | None,
    cell_gpus: float | None,
    cell_memory: str | None,
    shared_out: bool,
    insecure: bool,
) -> Iterator[Away | None]:
    """Join the cluster that was asked for; None is this machine. Raises UsageError with a sentence."""
    if on is None:
        _refuse({"--cell-cpus": cell_cpus, "--cell-gpus": cell_gpus, "--cell-memory": cell_memory})
        _refuse({"--shared-out": shared_out, "--insecure": insecure})
        yield None
        return
    address = read_on(on)
    memory = _bytes(cell_memory) if cell_memory else 0
    from edgeflock.lab.cluster.joining import joined
    from edgeflock.lab.compare.away import Away, CellSize

    with joined(address, insecure) as cluster:
        yield Away(cluster, CellSize(cell_cpus, cell_gpus or 0.0, memory), shared_out)


def _refuse(given: dict[str, Any]) -> None:
    for flag, value in given.items():
        if value:
            raise UsageError(f"{flag} is for a cluster: give --on ray, too")


def _bytes(text: str) -> int:
    try:
        return int(size(text))
    except ValueError:
        raise BadValue("--cell-memory", text, "a size > 0 such as 800MB or 4GiB") from None
