"""FedMRUR: MoFedSAM whose features stay near the global model's, and whose mean update keeps its length.

An et al. 2023 (NeurIPS, arXiv:2311.05924). Local loss: F = CE + gamma R in both SAM passes, R the mean of
exp(dist / sigma) over the batch. dist is the squared hyperbolic distance between the features z of the model
and zg of the received one (eval mode, once per sample) after the lift L(z) = (sqrt(beta + ||z||^2), z):
dist = -2 beta - 2 <L(z), L(zg)>_L. Server: U = (mean ||Delta||) s / ||s||, s the sum of the updates;
D <- -U / (lr K); w <- w + eta_g U. All clients count the same, and norms are those of flat vectors.
gamma, sigma, beta are `reg_gamma`, `reg_sigma`, `reg_beta`; rho, alpha and D are as in mofedsam.py.

Deviations: D is -U / (lr K), because Algorithm 1 as printed moves uphill and its D grows without bound; rho
is 0.05 by default (the paper's 0.5 is for ResNet18 with GroupNorm); directions are clipped to norm 10, as in
the code of its baselines (see mofedsam.py). No code of the authors was found, the paper was not re-read here.

Logged: `norm_ratio`, d_t = mean ||Delta|| / ||mean Delta||; `momentum_norm`, ||D||; `manifold_share`, mean
over clients of ||gamma grad R|| / ||grad CE|| in a round's last step (in the first one both models are the
same and R has no gradient). With the defaults gamma / sigma is 5e-7: the share says what that amounts to.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeflock.common import norms
from edgeflock.methods.kit.base import (
    Accumulators,
    Batch,
    Effort,
    Kind,
    Local,
    Method,
    Round,
    State,
    Training,
    Update,
)
from edgeflock.methods.kit.options import above, at_least, one_of, option
from edgeflock.methods.mofedsam import MoFedSAMClient, MoFedSAMParams, MoFedSAMServer

LARGEST_EXPONENT = 50.0  # of exp(dist / sigma); beyond it the term is constant
SHARE = "manifold_share"


@dataclass(frozen=True, kw_only=True)
class FedMRURParams(MoFedSAMParams):
    """Options of FedMRUR."""

    clip: float = option(
        10.0, "largest L2 norm of the local direction after weight decay; 0 turns it off", at_least(0)
    )
    sam_rho: float = option(
        0.05, "how far from x the second gradient is taken; 0 leaves it out", at_least(0), symbol="rho"
    )
    reg_gamma: float = option(
        0.005, "weight of the manifold term; 0 (with aggregate=mean) is MoFedSAM", at_least(0), symbol="gamma"
    )
    reg_sigma: float = option(1e4, "scale of the distance in the manifold term", above(0), symbol="sigma")
    reg_beta: float = option(1.0, "curvature of the hyperbolic space", above(0), symbol="beta")
    aggregate: str = option(
        "normalised",
        "length of the mean update: the mean length of the updates (normalised), or as it comes (mean)",
        one_of("normalised", "mean"),
    )


class FedMRURServer(MoFedSAMServer[FedMRURParams]):
    """Gives the mean update the mean length of the updates."""

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        length = sums.add("delta", update, Kind.DELTA, weight, norm=True) ** 0.5
        sums.count("length", weight * length)
        sums.count("steps", update.steps)
        if SHARE in update.scalars:
            sums.count("shares", update.scalars[SHARE])
            sums.count("shared", 1)

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        length = sums.scalars["length"] / sums.weights["delta"]
        mean = sums.mean("delta")
        there = norms.norm(mean)
        ratio = length / there if there else 0.0  # no direction: U is 0
        if self.params.aggregate == "normalised":
            mean.mul_(ratio)
        metrics = {"norm_ratio": ratio}
        if "shared" in sums.scalars:
            metrics[SHARE] = sums.scalars["shares"] / sums.scalars["shared"]
        return metrics | self.move(state, mean, sums.scalars["steps"] / sums.updates, round.lr)


class FedMRURClient(MoFedSAMClient[FedMRURParams]):
    """Adds the manifold term to the loss, and measures it once."""

    def begin(self, work: Local) -> None:
        if self.params.reg_gamma and work.steps_total >= work.order.batches:  # every sample is used
            parts = [work.features_at(work.start, batch) for batch in work.walk()]
            work.memo["zg of all"] = torch.cat(parts)

    def first_pass(self, work: Local, batch: Batch) -> Tensor:
        if not self.params.reg_gamma:
            return work.compute(batch)
        self._look_up(work, batch)
        if work.step_index < work.steps_total - 1:
            return work.compute(batch)
        term = work.memo["manifold gradient"] = work.scratch("manifold gradient").zero_()
        loss = work.compute(batch)
        del work.memo["manifold gradient"]
        rest = norms.norm(torch.sub(work.grads, term, out=work.scratch("uphill")))
        work.scalars[SHARE] = norms.norm(term) / rest if rest else 0.0
        return loss

    def _look_up(self, work: Local, batch: Batch) -> None:
        """Note zg of the batch, and its lift."""
        memo, order = work.memo, work.order
        if "zg of all" not in memo:
            memo["zg"] = work.features_at(work.start, batch)
            memo["x0g"] = lift(memo["zg"], self.params.reg_beta)
            return
        number, place = divmod(batch.step, order.batches)
        if place == 0:
            memo["zg of epoch"] = memo["zg of all"]
            if order.batches > 1:
                rows = torch.from_numpy(order.epoch(work.round, number)).to(work.params.device)
                memo["zg of epoch"] = memo["zg of all"].index_select(0, rows)
            memo["x0g of epoch"] = lift(memo["zg of epoch"], self.params.reg_beta)
        used = slice(*order.cuts[place : place + 2])
        memo["zg"], memo["x0g"] = memo["zg of epoch"][used], memo["x0g of epoch"][used]

    def loss(self, work: Local, batch: Batch, features: Tensor, logits: Tensor) -> Tensor | None:
        """Return the term's value; its gradient, which has a closed form, joins that of the features."""
        if not self.params.reg_gamma:
            return None
        value, slope = manifold(features.detach(), work.memo["zg"], work.memo["x0g"], self.params)
        if features.requires_grad:  # else they are the input itself, the same for both models
            out = work.memo.get("manifold gradient")
            if out is not None:
                work.bench.derive(features, out, slope, keep=True)
                work.passed(0, batch.samples)
            features.register_hook(slope.add)  # type: ignore[no-untyped-call]
        return value


def manifold(z: Tensor, others: Tensor, lifted: Tensor, params: FedMRURParams) -> tuple[Tensor, Tensor]:
    """Return gamma mean exp(dist / sigma) and its gradient by z; one row is one sample.

    d dist / dz = 2 (z - zg) - 2 (x0 - x0g) z / x0, x0 being the first number of L(z), `lifted` that of L(zg).
    """
    distances, apart, gap, own = distance(z, others, lifted, params.reg_beta)
    exponents = distances.div_(params.reg_sigma).clamp_(0, LARGEST_EXPONENT)
    powers = exponents.exp().mul_(params.reg_gamma / len(z))
    value = powers.sum()
    powers.mul_(exponents < LARGEST_EXPONENT)  # beyond it the term is constant
    slope = torch.addcmul(apart, gap.div_(own), z, value=-1).mul_(powers.mul_(2 / params.reg_sigma))
    return value, slope


def distance(z: Tensor, others: Tensor, lifted: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return dist of every row of z to that of the others; z - zg; x0 - x0g; x0.

    dist = ||z - zg||^2 - (x0 - x0g)^2 with x0 - x0g = <z - zg, z + zg> / (x0 + x0g): exactly 0 for z = zg,
    where the printed form cancels. Rounding may leave it a little below 0.
    """
    apart, own = z - others, lift(z, beta)
    gap = _dots(apart, z + others).div_(own + lifted)
    return _dots(apart, apart).addcmul_(gap, gap, value=-1), apart, gap, own


def lift(z: Tensor, beta: float) -> Tensor:
    """Return x0 = sqrt(beta + ||z||^2) of every row: L(z) = (x0, z) has <L(z), L(z)>_L = -beta."""
    return _dots(z, z).add_(beta).sqrt_()


def _dots(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products of rows, as a column."""
    return (a * b).sum(1, keepdim=True)


def extra_flops(params: FedMRURParams, effort: Effort) -> float:
    """Return MoFedSAM's, the norm of the result, and the manifold term on the features of both models."""
    term = effort.walk() + 12.0 * effort.samples * effort.features if params.reg_gamma else 0.0
    uphill = effort.vectors(4) + effort.passes() if params.sam_rho else 0.0
    return effort.vectors(3) + uphill + term


METHOD = Method(
    name="fedmrur",
    summary="MoFedSAM with a hyperbolic term on the features and a normalised mean",
    params=FedMRURParams,
    server=FedMRURServer,
    client=FedMRURClient,
    training=Training(lr=0.1, lr_decay=0.998, weight_decay=5e-4, batch_size=50, epochs=3),
    uniform=True,
    extra_flops=extra_flops,
)
