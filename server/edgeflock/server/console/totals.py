"""What a run has cost, for the table at its end: sums of the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.common.command.units import amount
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.sensors import MODEL
from edgeflock.server.costs.catalogue import together
from edgeflock.server.costs.time_line import EXAM, GATHER, HELD, OF_A_ROUND
from edgeflock.server.journal.reader import Numbers, Reader


@dataclass(frozen=True)
class Totals:
    """Sums over the whole run: what was written after the line of a round, and rounds that were given up,
    are in them."""

    clients: Mapping[tuple[int, str | None], Numbers] = field(
        default_factory=dict
    )  # by seat and source of energy
    rounds: Numbers = field(default_factory=dict)  # the server's, by name
    used: Numbers = field(default_factory=dict)  # of the budgets, with what clients said after the end

    @property
    def is_least(self) -> bool:
        """Whether a server was killed in a round: the bytes are these, or more."""
        return bool(together(self.clients.values()).get("at_least"))

    @property
    def held_s(self) -> float:
        """Seconds in which the operator has held the run between two rounds."""
        return self.rounds.get(HELD, 0.0)

    @property
    def spent(self) -> dict[str, float]:
        """Payload and seconds by their names in the ledger, nothing if it has none."""
        if not self.clients and not self.rounds:
            return {}
        moved = together(self.clients.values())
        seconds = {name: self.rounds[name] for name in (GATHER, *OF_A_ROUND) if name in self.rounds}
        return {name: moved.get(name, 0.0) for name in ("bytes_down", "bytes_up")} | seconds

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield lines of the table, for which there are numbers."""
        sums = together(self.clients.values())
        if flops := sums.get("flops"):
            yield "operations", f"{amount('flops', flops)} at the clients"
        if tested := sums.get("exam_s"):
            held = amount("seconds", self.rounds.get(EXAM, 0.0))
            yield "clients' own tests", f"{amount('seconds', tested)}, {held} of waiting: in no figure here"
        for source in sorted({str(source) for _, source in self.clients if source}):
            joules = [row["energy_j"] for (_, of), row in self.clients.items() if of == source]
            title = f"energy, {len(joules)} client{'s'[: len(joules) > 1]}"
            yield title, f"{amount('energy', sum(joules))} ({_from(source)})"
        if server := self.rounds.get("energy_j"):
            yield "energy, server", f"{amount('energy', server)} (from its sensor)"


def totals(run_dir: Path) -> Totals:
    """Return what the journal says; nothing, if it cannot be read."""
    with contextlib.suppress(EdgeflockError), contextlib.closing(Reader(run_dir)) as reader:
        return Totals(reader.totals("source"), reader.round_totals(), reader.used())
    return Totals()


def _from(source: str) -> str:
    return "as --watts states it" if source == MODEL else f"from {source}"
