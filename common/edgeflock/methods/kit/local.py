"""Local: all that a client's hooks may read, change and ask for in one local round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from edgeflock.common import norms, seeds
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.batches import Batch, LocalData, Stock, pick
from edgeflock.methods.kit.order import Order
from edgeflock.methods.kit.values import Plan, State
from edgeflock.methods.kit.workbench import Term, Workbench

__all__ = ["Batch", "Local", "LocalData"]

OWN, OWN_COUNTS = "own part", "own counts"  # in a client's state: what it keeps of the model
WALK_SIZE = 256  # samples at once where nothing is remembered for a backward pass
GRADIENT_WALK_SIZE = 64


class Local:
    """One client's local round on a workbench.

    Invariant: vectors that the engine hands out (`params`, `grads`, `momentum`, `delta()`, ...)
    belong to the workbench and are valid until its next round; send and save them before.
    """

    def __init__(
        self,
        bench: Workbench,
        data: Stock,
        plan: Plan,
        *,
        seed: int,
        seat: int,
        round: int,
        received: Mapping[Kind, Tensor],
        state: State | None = None,
    ) -> None:
        self.bench = bench
        self.model = bench.model
        self.net = bench.net
        self.params = bench.params  #: x, trained in place
        self.grads = bench.grads  #: the local direction of the step
        self.data = data
        self.plan = plan  #: the round's lr, momentum, weight decay, clip, flags
        self.seed = seed
        self.seat = seat  #: seat in the roster
        self.round = round
        self.received = {kind: tensor.to(bench.device) for kind, tensor in received.items()}
        self.state = _moved(state or State(), bench.device)  #: of the last counted round; never changed
        self.new_state = State(dict(self.state.vectors), dict(self.state.scalars))  #: the candidate
        self.scalars: dict[str, float] = {}  #: sent with the update
        self.memo: dict[str, Tensor] = {}  #: whatever a method wants to find again within the round
        self.start = self.received[Kind.MODEL]  #: what `delta` is taken from; the model as received
        self.generator = torch.Generator().manual_seed(seeds.derive(seed, "local", seat, round))
        self.order = Order(len(data), plan.batch_size, seed, seat, join_single=bool(bench.norms))
        self.steps_total = self.order.steps(epochs=plan.epochs, steps=plan.steps)  #: K
        self.steps_done = 0
        self.samples_done = 0
        self.forward_samples = 0  #: that passed through the model, in all passes together
        self.backward_samples = 0  #: and back
        self._precise = norms.has_float64(bench.device)
        sums = bench.device if self._precise else "cpu"
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=sums)  #: over the samples used
        self.first_batch: Batch | None = None  #: set in `begin` to replace the first batch of the order
        self.term: Term | None = None  # C2, set by the step loop
        self._moving = False  # whether the momentum buffer holds something of this round
        self._reset()

    def _reset(self) -> None:
        self.params[: self.start.numel()].copy_(self.start)  # shorter where a method keeps the head (FedTR)
        if self.model.buffers.numel():
            self.model.buffers.copy_(self.received[Kind.BUFFERS])
        if self.model.counters.numel():
            self.model.counters.copy_(self.received[Kind.COUNTERS])
        if self.model.keeps:
            self.model.begin_own(self.state.vectors.get(OWN), self.state.vectors.get(OWN_COUNTS))
        self.model.restore()
        self.bench.seed(seeds.derive(self.seed, "dropout", self.seat, self.round))
        self.net.train()

    # What a round has

    @property
    def lr(self) -> float:
        return self.plan.lr

    @property
    def step_index(self) -> int:
        """The step at hand, from 0."""
        return self.steps_done

    def zero_or(self, kind: Kind, elements: int | None = None) -> Tensor:
        """Return a received bundle; one that was not sent is zero. Not to be changed."""
        found = self.received.get(kind)
        if found is not None:
            return found
        return self.bench.scratch(f"zero {elements}", elements)

    def scratch(self, name: str) -> Tensor:
        """Return a reused vector of the model's size; it holds anything at the round's start."""
        return self.bench.scratch(f"method {name}")

    def keep(self, name: str, vector: Tensor) -> None:
        """Copy a vector into the candidate state."""
        stored = self.bench.scratch(f"state {name}", vector.numel())
        self.new_state.vectors[name] = stored.copy_(vector.reshape(-1))

    def start_from(self, vector: Tensor) -> None:
        """Begin elsewhere: `params` and `start` are that vector (DOMO's shift)."""
        self.start = vector
        self.params.copy_(vector)

    # Batches

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of the round's K steps."""
        found = self.bench.feed.batches(self.data, self.order, self.round, self.steps_total)
        if self.bench.augment:
            found = (self._augmented(batch, self.round, batch.step) for batch in found)
        for batch in found:
            if batch.step == 0 and self.first_batch is not None:
                batch = self.first_batch._replace(step=0)
            yield _to(batch, self.bench.device)

    def batch_in(self, round: int, step: int) -> Batch:
        """Return the batch of any round's order at a step (from 0), with tensors of its own."""
        batch = pick(self.data, self.order, round, step)
        if self.bench.augment:
            batch = self._augmented(batch, round, step)
        return _to(batch, self.bench.device)

    def _augmented(self, batch: Batch, round: int, step: int) -> Batch:
        """Return the batch of a step, augmented: a function of seed, seat, round and step alone."""
        random = seeds.numpy_generator(self.order.seed, "augment", self.order.seat, round, step)
        return batch._replace(x=self.bench.augment.of(batch.x, random))

    def walk(self, size: int = WALK_SIZE) -> Iterator[Batch]:
        """Yield the whole local set in stored order, as it is: augmented are the batches of steps alone."""
        for x, y in self.data.parts(size):
            yield _to(Batch(x, y, -1), self.bench.device)

    # Passes

    def compute(
        self, batch: Batch, *, at: Tensor | None = None, repeat: bool = False, out: Tensor | None = None
    ) -> Tensor:
        """Write the gradient of loss + C2 at `params` (or `at`) to `grads` (or `out`) and return the loss.

        `repeat`: a further pass on the step's batch, with its dropout mask; BatchNorm's statistics stay.
        """
        return self._pass(batch, self.params if at is None else at, out, self.term, repeat)

    def gradient_at(self, vector: Tensor, batch: Batch, out: Tensor | None = None) -> Tensor:
        """Return the gradient of the loss alone at a vector, as a further pass on the step's batch.

        It lies in `out`, or in the scratch vector `gradient_at` until the next call.
        """
        target = self.scratch("gradient_at") if out is None else out
        self._pass(batch, vector, target, None, True)
        return target

    def _pass(self, batch: Batch, at: Tensor, out: Tensor | None, term: Term | None, repeat: bool) -> Tensor:
        target = self.grads if out is None else out
        self.passed(batch.samples, batch.samples)
        if not repeat:
            self.bench.fresh()
            if at is self.params:
                return self.bench.gradient(batch, target, term)
            with self.bench.at(at):
                return self.bench.gradient(batch, target, term)
        with self.bench.repeating(), self.bench.at(at):
            return self.bench.gradient(batch, target, term)

    def forward_at(
        self, vector: Tensor, batch: Batch, buffers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return (features, logits) of a frozen model: eval mode, no gradient.

        BatchNorm's statistics are `buffers`; else the present ones for `params`, the received for any other.
        """
        if buffers is None and vector is not self.params:
            buffers = self.received.get(Kind.BUFFERS)
        self.passed(batch.samples)
        with torch.no_grad(), self.bench.evaluating(), self.bench.at(vector, buffers):
            return self.net(batch.x)

    def features_at(self, vector: Tensor, batch: Batch, buffers: Tensor | None = None) -> Tensor:
        return self.forward_at(vector, batch, buffers)[0]

    def logits_at(self, vector: Tensor, batch: Batch, buffers: Tensor | None = None) -> Tensor:
        return self.forward_at(vector, batch, buffers)[1]

    def loss_at(self, vector: Tensor, batch: Batch, buffers: Tensor | None = None) -> float:
        """Return the mean loss of a frozen model on a batch."""
        self.passed(batch.samples)
        with torch.no_grad(), self.bench.evaluating(), self.bench.at(vector, buffers):
            return float(self.net.loss(self.net(batch.x)[1], batch.y))

    def full_gradient(self, vector: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the gradient of the mean loss over the whole local set: eval mode, no weight decay.

        It lies in `out`, or in the scratch vector `full_gradient`.
        """
        total = (self.scratch("full_gradient") if out is None else out).zero_()
        part = self.scratch("full_gradient part")
        buffers = None if vector is self.params else self.received.get(Kind.BUFFERS)
        self.passed(len(self.data), len(self.data))
        with self.bench.evaluating(), self.bench.at(vector, buffers):
            for batch in self.walk(GRADIENT_WALK_SIZE):
                self.bench.gradient(batch, part)
                total.add_(part, alpha=batch.samples / len(self.data))
        return total

    def passed(self, forward: int, backward: int = 0) -> None:
        """Note that so many samples passed through the model, and back: operations are counted by it."""
        self.forward_samples += forward
        self.backward_samples += backward

    def effort(self) -> dict[str, float]:
        """Return what was done so far, as a server's half tells it of what it trains itself (S0)."""
        done = (self.steps_done, self.samples_done, self.forward_samples, self.backward_samples)
        return dict(zip(("steps", "samples", "forward", "backward"), map(float, done), strict=True))

    # The step and the end

    @property
    def momentum(self) -> Tensor:
        """The heavy ball's buffer; what it holds before the first `heavy_ball` of a round counts as zero."""
        return self.bench.scratch("momentum")

    def heavy_ball(self) -> None:
        """v <- m v + g, x <- x - lr v, with v = 0 at the round's start; without momentum x <- x - lr g."""
        factor = self.plan.momentum
        if factor == 0:
            self.params.add_(self.grads, alpha=-self.plan.lr)
            return
        moving = self.momentum
        if self._moving:
            torch.add(self.grads, moving, alpha=factor, out=moving)
        else:
            moving.copy_(self.grads)
            self._moving = True
        self.params.add_(moving, alpha=-self.plan.lr)

    def own_steps(self) -> Callable[[], None] | None:
        """Return what moves the parameters that are the client's own, None if there are none: the run's SGD
        with its momentum, or its other optimizer, along the gradient of the step."""
        x, g, plan = self.model.own_trained, self.bench.own_grads, self.plan
        if not x.numel():
            return None
        if self.bench.optimizer.adaptive:
            moments = self.bench.adamw("own ", x.numel())
            return lambda: moments.step(x, g, lr=plan.lr, decay=plan.weight_decay)
        moving = self.bench.scratch("own momentum", x.numel()).zero_()

        def step() -> None:
            moving.mul_(plan.momentum).add_(g).add_(x, alpha=plan.weight_decay)
            x.add_(moving, alpha=-plan.lr)

        return step

    def keep_own(self) -> None:
        """Write what is the client's own to its candidate state."""
        if self.model.keeps:
            self.new_state.vectors[OWN] = self.model.own.clone()
            self.new_state.vectors[OWN_COUNTS] = self.model.own_counts.clone()

    def clip(self, limit: float) -> None:
        """Scale the local direction down to an L2 norm of `limit`."""
        length = norms.norm(self.grads)
        if length > limit:
            self.grads.mul_(limit / length)

    def count(self, loss: Tensor, batch: Batch) -> None:
        """Note that a step is done."""
        self.loss_sum.add_(loss if self._precise else loss.cpu(), alpha=batch.samples)
        self.samples_done += batch.samples
        self.steps_done += 1

    def delta(self) -> Tensor:
        """Return params - start, in a reused vector that the caller may change."""
        elements = self.start.numel()  # fewer where a method keeps the head, until it has put it in place
        return torch.sub(self.params[:elements], self.start, out=self.bench.scratch("delta", elements))

    def mean_loss(self) -> float:
        """Return the mean training loss over the samples used; 0 without a step."""
        return float(self.loss_sum) / self.samples_done if self.samples_done else 0.0

    def report(self) -> dict[str, float]:
        """Return the scalars that travel with the update: the method's own, and those of every update."""
        return {
            **self.scalars,
            "samples": float(len(self.data)),
            "steps": float(self.steps_done),
            "loss": self.mean_loss(),
        }


def _moved(state: State, device: torch.device) -> State:
    return State({name: vector.to(device) for name, vector in state.vectors.items()}, dict(state.scalars))


def _to(batch: Batch, device: torch.device) -> Batch:
    if batch.y.device == device:
        return batch
    return Batch(batch.x.to(device), batch.y.to(device), batch.step)
