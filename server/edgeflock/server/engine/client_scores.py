"""Scores of clients' own models: those of a round's counted members, and one evaluation for all of a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgeflock.common.scores import Score, Summary, summarise
from edgeflock.server.core.decisions import Outcome, Verdict
from edgeflock.server.core.effects import Announce
from edgeflock.server.engine.scoring import told


@dataclass(frozen=True)
class ClientScores:
    """The scores of the counted members of one round, by seat and name."""

    by_seat: Mapping[int, Mapping[str, Score]]

    @classmethod
    def of(cls, scores: Mapping[int, Mapping[str, Score]], outcomes: Iterable[Outcome]) -> ClientScores:
        """Keep those of the members whose update counts."""
        counted = [item.seat for item in outcomes if item.verdict is Verdict.COUNTED]
        return cls({seat: scores[seat] for seat in counted if scores.get(seat)})

    def announcements(self, round: int) -> list[Announce]:
        """Return what is said of them, once they are durable."""
        return [told(round, name, found) for name, found in self.summaries().items()]

    def summaries(self) -> dict[str, Summary]:
        names = sorted({name for mine in self.by_seat.values() for name in mine})
        groups = {name: [mine[name] for mine in self.by_seat.values() if name in mine] for name in names}
        return {name: summarise(group) for name, group in groups.items()}
