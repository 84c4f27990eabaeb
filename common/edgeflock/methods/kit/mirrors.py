"""Client vectors of which the server keeps the sum (SCAFFOLD's c_i, FedDyn's and FedDC's h_i): who lost his.

A client that lost its vector goes on with zero, as on first participation; the server's sum keeps the lost
share for ever. So the server remembers of whom it holds a share, and says how many of them came without.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.base import Accumulators, Local, ServerHalf, State, Update
from edgeflock.methods.kit.options import P

HELD = "held"  # by seat: 1 where the server's sum has a share of that client
CAME, CAME_WITHOUT = 1.0, 2.0  # in the sums, by seat: who has moved, and had his vector or had none
LOST = "lost_states"
MOVED = "moved"


def own(work: Local, name: str) -> Tensor | None:
    """Return the client's vector, None if it has none; the update tells the server which."""
    found = work.state.vectors.get(name)
    work.scalars[HELD] = float(found is not None)
    return found


class MirrorServer(ServerHalf[P]):
    """Counts the clients that came without the vector whose share the server holds."""

    by_seat = True  # HELD
    moves = False  # whether `moved` is asked for

    def begin(self, state: State) -> None:
        state.vectors[HELD] = torch.zeros(self.setting.clients)

    def sums(self) -> Mapping[str, Layout]:
        apart = self.moves and self.params.weighting == "weighted"
        plain = {MOVED: self.setting.layout} if apart else {}
        return {**super().sums(), HELD: Layout.of([(HELD, (self.setting.clients,))]), **plain}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        if MOVED in sums.vectors:
            sums.add(MOVED, update, Kind.DELTA, 1.0)
        if not update.steps:  # nothing has moved
            return
        sums.vectors[HELD][update.seat] = CAME if update.scalars.get(HELD, 0.0) else CAME_WITHOUT

    def moved(self, sums: Accumulators) -> Tensor:
        """Return the plain sum of all deltas, whatever the weights of their mean; ask before that."""
        return sums.vectors.get(MOVED, sums.vectors["delta"])  # with equal weights it is that one

    def lost(self, state: State, sums: Accumulators) -> dict[str, float]:
        """Call at the commit: note whose shares are held now, return what the log should say."""
        came, held = sums.vectors[HELD], state.vectors[HELD]
        lost = float(((came == CAME_WITHOUT) & (held > 0)).sum())
        held[came > 0] = 1
        return {LOST: lost} if lost else {}
