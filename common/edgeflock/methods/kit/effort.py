"""Effort: what a client did in a round, in numbers from which operations are counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Effort:
    """One local round, and the model it trained.

    A pass is one sample's. A vector operation is one for each of the |w| parameters.
    """

    parameters: int  # |w|
    features: int  # of one sample
    forward: int  # operations of one forward pass
    backward: int
    steps: int
    samples: int  # in all steps together
    held: int  # the client's local samples

    def bare(self) -> Effort:
        """Return the same work without a number to compute on but in passes."""
        return replace(self, parameters=0, features=0)

    def still(self) -> Effort:
        """Return the same work without the passes."""
        return replace(self, forward=0, backward=0)

    def training(self) -> float:
        """Return the operations of the passes that every method has."""
        return self.samples * (self.forward + self.backward)

    def vectors(self, count: float) -> float:
        """Return the operations of so many vector operations in every step."""
        return count * self.steps * self.parameters

    def forwards(self, count: float = 1) -> float:
        """Return the operations of so many further forward passes for every sample of a step."""
        return count * self.samples * self.forward

    def passes(self, count: float = 1) -> float:
        """Return the operations of so many further forward and backward passes for every sample of a step."""
        return count * self.training()

    def walk(self, *, backward: bool = False) -> float:
        """Return the operations of one pass over the whole local set."""
        return self.held * (self.forward + (self.backward if backward else 0))

    def first_batch(self, count: float) -> float:
        """Return the operations of so many further passes on one batch."""
        return count * self.training() / self.steps if self.steps else 0.0
