"""FedDC: a drift that every client keeps and is pulled back by, and SCAFFOLD's control variates beside it.

Gao et al., CVPR 2022 (arXiv:2203.11751); FedTR's ancestor. At client i, with w as received:
    g <- grad L + alpha (x - (w - h_i)) - c_i + c    its penalty alpha/2 ||x - (w - h_i)||^2, its linear term;
    h_i <- h_i + (x+ - w)                            the drift, once a round, never reset;
    c_i <- c_i - c + (w - x+)/(K lr)                 option II of SCAFFOLD.
Server: w <- mean over S of x_i + mean over ALL N of h_i, c += (1/N) sum over S of (c_i+ - c_i). All start at
zero; N is everybody who was ready before the round opened, and stays N under `weighting`, which changes the
mean of x_i alone. h, the mean of all h_i, is moved by the decoded deltas at both ends, so that it stays that
mean whatever the codec; what the control variates are and how they travel is said in `scaffold.py`.
Without c and c_i it would be FedDyn: h_i is minus FedDyn's over alpha.

Confirmed in the authors' code (gaoliang13/FedDC): all of it, the plain means, alpha .1 for MNIST, lr .1
with .998, batch 50, 5 epochs, weight decay 1e-3, clip 10. Left out, as in FedDyn and SCAFFOLD here: it
divides alpha and c by n_i N/n where sizes differ. Other public code has (D_i - D)/(K lr) for the linear
term, with last round's D_i = x_i+ - w and their mean D, hence no memory in c_i; that is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgeflock.methods.kit.base import Accumulators, Bundles, Effort, Kind, Local, Method, Round, State
from edgeflock.methods.kit.options import Params, above, option
from edgeflock.methods.scaffold import SHIFT, ControlClient, ControlServer

DRIFT = "drift"
PULL = "alpha (w - h_i) - (c - c_i)"


@dataclass(frozen=True, kw_only=True)
class FedDCParams(Params):
    """Options of FedDC."""

    alpha: float = option(
        0.1, "strength of the pull to the received model less the drift", above(0), symbol="alpha"
    )


class FedDCServer(ControlServer[FedDCParams]):
    """Keeps h, the mean of all h_i, beside c."""

    moves = True

    def begin(self, state: State) -> None:
        super().begin(state)
        state.vectors[DRIFT] = torch.zeros_like(state.model)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        drift = state.vectors[DRIFT].add_(self.moved(sums), alpha=1 / len(round.samples))
        state.model.add_(sums.mean("delta")).add_(drift)
        return self.turn(state, sums, round)


class FedDCClient(ControlClient[FedDCParams]):
    """Adds both terms at once, and keeps h_i beside c_i."""

    def begin(self, work: Local) -> None:
        super().begin(work)
        alpha, drift, shift = self.params.alpha, work.state.vectors.get(DRIFT), work.memo.get(SHIFT)
        pull = torch.mul(work.start, alpha, out=work.scratch(PULL))
        if drift is not None:
            pull.sub_(drift, alpha=alpha)
        work.memo[PULL] = pull if shift is None else pull.sub_(shift)

    def gradient(self, work: Local) -> None:
        work.grads.add_(work.params, alpha=self.params.alpha).sub_(work.memo[PULL])

    def sent(self, work: Local, decoded: Bundles) -> None:
        super().sent(work, decoded)
        before, moved = work.state.vectors.get(DRIFT), decoded[Kind.DELTA]
        work.keep(DRIFT, moved if before is None else torch.add(before, moved, out=work.scratch(PULL)))


def extra_flops(params: FedDCParams, effort: Effort) -> float:
    """Return 4 |w| for every step as FedDyn, 2 |w| as SCAFFOLD, and the increment."""
    return effort.vectors(6) + 2.0 * effort.parameters


METHOD = Method(
    name="feddc",
    summary="a drift kept by every client, averaged over all of them, and SCAFFOLD's control variates",
    params=FedDCParams,
    server=FedDCServer,
    client=FedDCClient,
    uniform=True,
    extra_flops=extra_flops,
)
