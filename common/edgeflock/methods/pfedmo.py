"""pFedMo: Nesterov steps at the clients, which start between their mean and a model that the server trains.

With (xb, yb) the weighted means of what came up, and (x_r, y_r) the representation model, trained by the same
steps on public data (tau of them per round, going on from round to round), client i gets, with a = pi s_i:
    y_i+ = (1 - a) yb + a y_r                             eq. 11
    x_i+ = (1 - a) xb + a x_r + c (y_i+ - yb)             eq. 12; c is 0 interp, -1 printed, 1 flipped
    s_i = 1 - l_i / u_i, u_i the largest l_i so far, l_i = mean_b CE(softmax of x_r's logits, x_i's logits)
and x_+ = weighted mean of x_i+ is the run's model. s_i is 0 in round 1. A client that agrees with x_r is
pulled more than one that does not: odd, but the paper says it twice.

`eq12`: as printed, x_i+ = xb + a ((x_r - y_r) - (xb - yb)): the pull to x_r cancels, and the next step kicks
the client AWAY from x_r. The text (distillation, more weight to the representation model) means `interp`.

In place of y the wire carries v = x - y, the bundle `momentum` (METHODS 2.4). Written with v the rules are
    x_i+ = xb + a ((1 + c) X - c V),  v_i+ = vb + a (c X + (1 - c) V),  X = x_r - xb, V = v_r - vb.
They are formed when client i asks; two numbers per client are kept. x_i is what was sent plus its delta.
Scores come from public data that are not trained on; the paper takes test data: `score_set=test`.
BatchNorm: x_r has statistics of its own, personal models the plain average. No code of the authors was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeflock.common import seeds
from edgeflock.methods.fednag import FedNagServer
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import (
    Accumulators,
    Bundles,
    Kind,
    Local,
    Method,
    Plan,
    Round,
    Setting,
    State,
    Training,
    Update,
)
from edgeflock.methods.kit.local import WALK_SIZE
from edgeflock.methods.kit.nesterov import NesterovClient, NesterovParams, caution, extra_flops
from edgeflock.methods.kit.options import at_least, one_of, option, unit
from edgeflock.methods.kit.order import Order
from edgeflock.methods.kit.tools import Tools

SIGNS = {"interp": 0.0, "printed": -1.0, "flipped": 1.0}  # c of eq. 12
SERVER = -1  # seat of the server among those who train: of its batches' order
TEACHER = "representation"


@dataclass(frozen=True, kw_only=True)
class PFedMoParams(NesterovParams):
    """Options of pFedMo."""

    pi: float = option(1.0, "pull to the representation model; 0 is FedNAG", unit(), symbol="pi")
    eq12: str = option(
        "interp",
        "model that is sent: between mean and representation model, as printed (kicks away), or the "
        "printed term with the other sign",
        one_of(*SIGNS),
        symbol="eq. 12",
    )
    score_set: str = option(
        "heldout",
        "data that updates are scored on: held back by the server, or its test data, as in the paper",
        one_of("heldout", "test"),
    )
    score_batch: int = option(
        64, "samples that a round is scored on; 0 is all", at_least(0, "an integer"), symbol="B"
    )
    public_fraction: float = option(
        0.05,
        "share of a named data set that the server trains on, taken from the clients; without --public-data",
        unit(low=False, high=False),
    )


class PFedMoServer(FedNagServer[PFedMoParams]):
    """Trains the representation model, scores the updates, forms what each client gets."""

    closing_tests = True

    def __init__(self, params: PFedMoParams, setting: Setting, tools: Tools | None = None) -> None:
        super().__init__(params, setting, tools)
        self._student = PFedMoClient(params, setting)
        self._sign = SIGNS[params.eq12]

    def begin(self, state: State) -> None:
        super().begin(state)  # momentum: vb
        state.vectors |= {"mean": state.model.clone(), TEACHER: state.model.clone()}
        state.vectors[f"{TEACHER} momentum"] = torch.zeros_like(state.model)
        if state.vectors["buffers"].numel():
            state.vectors[f"{TEACHER} buffers"] = state.vectors["buffers"].clone()

    # S0: the representation model

    def prepare(self, state: State, round: Round) -> State | None:
        bench = self.tools.workbench()
        received = {
            Kind.MODEL: state.vectors[TEACHER],
            Kind.MOMENTUM: state.vectors[f"{TEACHER} momentum"],
            Kind.BUFFERS: self.buffers(state, TEACHER),
            Kind.COUNTERS: state.vectors["counters"],
        }
        work = Local(
            bench,
            self.tools.public_data(),
            self._plan(round, joins=bool(bench.norms)),
            seed=self.setting.seed,
            seat=SERVER,
            round=round.number,
            received=received,
        )
        bundles = steps.run(self._student, work, lambda: self.going)
        if work.steps_done < work.steps_total:
            return None
        momentum = bundles.get(Kind.MOMENTUM, received[Kind.MOMENTUM])
        vectors = {TEACHER: work.params.clone(), f"{TEACHER} momentum": momentum.clone()}
        made = State(vectors, work.effort())
        if f"{TEACHER} buffers" in state.vectors:
            made.vectors[f"{TEACHER} buffers"] = bench.model.buffers.clone()
        logits = self._logits(work.params, bench.model.buffers, round.number)
        made.scalars["forward"] += len(logits)
        made.vectors["opinion"] = torch.softmax(logits, 1)
        return made

    def _plan(self, round: Round, *, joins: bool) -> Plan:
        """The clients' plan with tau steps; where they do epochs, the plain mean of theirs."""
        assert round.plan is not None
        plan = round.plan
        counts = [
            Order(samples, plan.batch_size, 0, 0, joins).steps(epochs=plan.epochs, steps=plan.steps)
            for samples in round.samples.values()
            if samples
        ]
        tau = int(sum(counts) / len(counts) + 0.5) if counts else 0
        return replace(plan, steps=tau)

    def _score_samples(self, round: int) -> Tensor:
        """The batch of a round, the same for every client."""
        held, size = self.tools.score_data().x, self.params.score_batch
        if not 0 < size < len(held):
            return held
        random = seeds.numpy_generator(self.setting.seed, "score", round)
        return held[torch.from_numpy(random.permutation(len(held))[:size])]

    def _logits(self, params: Tensor, buffers: Tensor, round: int) -> Tensor:
        bench = self.tools.workbench()
        parts = torch.split(self._score_samples(round), WALK_SIZE)
        with torch.no_grad(), bench.evaluating(), bench.at(params, buffers):
            return torch.cat([bench.net(x)[1] for x in parts])

    # S2, S3: what goes down

    def broadcast(self, state: State, round: Round) -> Bundles:
        return {Kind.MODEL: state.model} if round.number == 1 else {}

    def personal_kinds(self, round: Round) -> tuple[Kind, ...]:
        return () if round.number == 1 else (Kind.MODEL, Kind.MOMENTUM)

    def personal(self, state: State, round: Round, seat: int) -> Bundles:
        if round.number == 1:
            return {}
        pull = self._pull(state, seat)
        model, momentum = (torch.empty_like(state.model) for _ in range(2))
        return {
            Kind.MODEL: self._model(state, pull, model),
            Kind.MOMENTUM: self._momentum(state, pull, momentum),
        }

    def _pull(self, state: State, seat: int) -> float:
        """a = pi s_i; 0 for who has not been scored yet."""
        return self.params.pi * state.scalars.get(f"score {seat}", 0.0)

    def _model(self, state: State, pull: float, out: Tensor) -> Tensor:
        """x_i+."""
        v, c = state.vectors, self._sign
        torch.lerp(v["mean"], v[TEACHER], pull * (1 + c), out=out)
        if c:
            out.add_(v["momentum"], alpha=pull * c).sub_(v[f"{TEACHER} momentum"], alpha=pull * c)
        return out

    def _momentum(self, state: State, pull: float, out: Tensor) -> Tensor:
        """v_i+."""
        v, c = state.vectors, self._sign
        torch.lerp(v["momentum"], v[f"{TEACHER} momentum"], pull * (1 - c), out=out)
        if c:
            out.add_(v[TEACHER], alpha=pull * c).sub_(v["mean"], alpha=pull * c)
        return out

    # S4, S5: scores and means

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        super().fold(sums, update, weight)
        loss = self._distance(sums, update)
        largest = max(loss, sums.state.scalars.get(f"largest {update.seat}", loss))
        score = 1 - loss / largest if largest else 0.0
        sums.count(f"largest {update.seat}", largest)
        sums.count(f"score {update.seat}", score)
        sums.count("pull", weight * self.params.pi * score)

    def _distance(self, sums: Accumulators, update: Update) -> float:
        """l_i: cross entropy of the client's model with the representation model's opinion."""
        assert sums.round.prepared is not None
        model = self.tools.workbench().scratch("model of a client")
        self._model(sums.state, self._pull(sums.state, update.seat), model)
        for start, block in update.blocks(Kind.DELTA):
            model[start : start + len(block)].add_(block)
        own = f"{TEACHER} buffers" in sums.state.vectors
        buffers = update.tensor(Kind.BUFFERS) if own else sums.state.vectors["buffers"]
        logits = self._logits(model, buffers, sums.round.number)
        sums.passed(len(logits))
        opinion = sums.round.prepared.vectors["opinion"]
        return -float((opinion * torch.log_softmax(logits, 1)).sum(1).mean())

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        assert round.prepared is not None
        state.vectors["mean"].copy_(state.model).add_(sums.mean("delta"))
        state.vectors["momentum"].copy_(sums.mean("momentum"))
        for name in state.vectors.keys() & round.prepared.vectors.keys():
            state.vectors[name].copy_(round.prepared.vectors[name])
        pull = sums.scalars.pop("pull") / sums.weights["delta"]
        state.scalars |= sums.scalars
        self._model(state, pull, state.model)
        scores = [value for name, value in sums.scalars.items() if name.startswith("score ")]
        return {"score": sum(scores) / len(scores), "score_max": max(scores), "pull": pull}

    # S6, S7: what is tested

    def closing(self, state: State) -> Plan | None:
        """Let everybody test the last personal model."""
        return Plan(lr=0.0) if self.setting.tested else None

    def result_of(self, state: State, seat: int) -> Tensor | None:
        return self._model(state, self._pull(state, seat), torch.empty_like(state.model))

    def models(self, state: State) -> Iterator[tuple[str, Tensor]]:
        yield TEACHER, state.vectors[TEACHER]
        model = torch.empty_like(state.vectors["mean"])
        for name in state.scalars:
            if name.startswith("score "):
                yield "personal", self._model(state, self.params.pi * state.scalars[name], model)

    def made_of(self, state: State) -> Iterable[str]:
        momenta = ("momentum", f"{TEACHER} momentum") if self._sign else ()
        names = ("mean", TEACHER, "buffers", f"{TEACHER} buffers", *momenta)
        return [name for name in names if name in state.vectors]

    def buffers(self, state: State, name: str) -> Tensor:
        own = state.vectors.get(f"{TEACHER} buffers") if name == TEACHER else None
        return super().buffers(state, name) if own is None else own


class PFedMoClient(NesterovClient[PFedMoParams]):
    """Steps like FedNAG's, from a start of its own."""

    def own_model(self, work: Local) -> Tensor | None:
        """Return the personalised model that came."""
        return work.start

    def own_buffers(self, work: Local) -> Tensor | None:
        """Return the plain average that came with it, which the local work has moved on from."""
        return work.received.get(Kind.BUFFERS)


METHOD = Method(
    name="pfedmo",
    summary="Nesterov steps from personal starts between the mean and a model of public data",
    classes="scores clients by the classes that their models see",
    params=PFedMoParams,
    server=PFedMoServer,
    client=PFedMoClient,
    training=Training(lr=0.01, batch_size=64),
    full_participation=True,
    own_momentum=True,
    extra_flops=extra_flops,
    caution=caution,
    public_data=True,
    by_parts=False,  # the fold scores each update with what S0 has trained
    models=(TEACHER, "personal"),
    client_models="local",
)
