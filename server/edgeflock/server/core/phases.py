"""The phases of a run, what may follow what, and the one way from a phase to the next."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    """Where the run is."""

    IDLE = "idle"
    GATHERING = "gathering"  # waiting for the roster
    OPENING = "opening"  # the round is decided; broadcast and spool are being made
    OPEN = "open"  # updates come in
    FOLDING = "folding"  # closed; the counted set is decided
    COMMITTING = "committing"
    COMMITTED = "committed"  # between two rounds
    ENDING = "ending"  # the end is decided and on its way to the journal
    ENDED = "ended"


FOLLOWS: Mapping[Phase, frozenset[Phase]] = {
    Phase.IDLE: frozenset(
        {Phase.GATHERING, Phase.OPENING, Phase.COMMITTED, Phase.ENDING, Phase.ENDED},  # as the journal has it
    ),
    Phase.GATHERING: frozenset({Phase.OPENING, Phase.ENDING}),
    Phase.OPENING: frozenset({Phase.OPEN, Phase.FOLDING, Phase.COMMITTED, Phase.ENDING}),
    Phase.OPEN: frozenset({Phase.FOLDING, Phase.ENDING}),
    Phase.FOLDING: frozenset({Phase.COMMITTING, Phase.ENDING}),
    Phase.COMMITTING: frozenset({Phase.COMMITTED, Phase.ENDING}),
    Phase.COMMITTED: frozenset({Phase.OPENING, Phase.ENDING}),
    Phase.ENDING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}  # drawn in docs/architecture.md


class InvalidTransition(RuntimeError):
    """The machine wanted what the table does not have: a bug of its own, never a peer's mistake."""

    def __init__(self, before: Phase, after: Phase) -> None:
        super().__init__(f"invalid transition [{before} -> {after}]")


class Position:
    """The phase that a run is in. The run and its round hold one position together."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE

    def become(self, phase: Phase) -> None:
        """Go on to another phase, if it may follow."""
        if phase not in FOLLOWS[self.phase]:
            raise InvalidTransition(self.phase, phase)
        self.phase = phase
