"""A workbench: model, gradient and scratch vectors of one training slot, for one client after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from edgeflock.common.datasets.kit.augment import OFF, Augmentation
from edgeflock.common.flat import FlatModel, views
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout
from edgeflock.common.tuning.optimizer import SGD, AdamW, Optimizer
from edgeflock.methods.kit.batches import Batch, BatchFeed

Term = Callable[[Batch, Tensor, Tensor], Tensor | None]  # C2: (batch, features, logits) -> extra loss


class Workbench:
    """Owns everything of the model's size, so that a round allocates nothing of that size.

    One slot trains one client at a time; slots that train in parallel share no workbench.
    `threads` is the process's number of intra-op threads: other than 1 gives other bits. What is trained on
    is augmented as the run says, and stepped along by its optimizer.
    """

    def __init__(
        self,
        net: Net,
        device: torch.device | str = "cpu",
        *,
        threads: int = 1,
        augment: Augmentation = OFF,
        optimizer: Optimizer = SGD,
    ) -> None:
        torch.set_num_threads(threads)
        self.model = FlatModel(net, device)
        self.net = net
        self.params = self.model.params
        self.grads = torch.zeros_like(self.params)
        self.own_grads = torch.zeros_like(self.model.own_trained)  # of what is the client's own
        self.feed = BatchFeed()
        self.augment, self.optimizer = augment, optimizer
        norms = (module for module in net.modules() if isinstance(module, _BatchNorm))
        self.norms = [module for module in norms if module not in net.still]
        self.dropout = torch.Generator(self.device)
        self._dropouts = [module for module in net.modules() if isinstance(module, SeededDropout)]
        for module in self._dropouts:
            module.generator = self.dropout
        self._mask = self.dropout.get_state()
        self._scratch: dict[str, Tensor] = {}
        self._cuts: dict[int, list[Tensor]] = {}  # of scratch vectors, by id
        self._sizes = [spec.elements for spec in self.model.layout.tensors]
        self._shapes = [spec.shape for spec in self.model.layout.tensors]
        self._standing = self._cut(self.params)  # where the module's parameters point to
        self._grad_parts = self._cut(self.grads)

    @property
    def device(self) -> torch.device:
        return self.params.device

    def scratch(self, name: str, elements: int | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the reused vector of that name, of the model's size unless told otherwise; holds anything.

        Allocated once: a fresh vector of 45 MB costs 20 ms of page faults.
        """
        wanted = self.params.numel() if elements is None else elements
        found = self._scratch.get(name)
        if found is None or found.numel() != wanted or found.dtype != dtype:
            self._cuts.clear()  # a vector that goes may leave its id to another
            found = torch.zeros(wanted, dtype=dtype, device=self.device)
            self._scratch[name] = found
        return found

    def seed(self, seed: int) -> None:
        """Start the dropout masks of a round."""
        self.dropout.manual_seed(seed)
        self._mask = self.dropout.get_state()

    def gradient(self, batch: Batch, out: Tensor, term: Term | None = None) -> Tensor:
        """Write the gradient of mean loss plus C2's term to `out`, return the loss; the caller sets modes."""
        if term is None and self.model.whole:
            loss = self.net.gradient_by_hand(batch.x, batch.y, self._parts(out))
            if loss is not None:
                return loss
        lone = self.norms and batch.samples == 1
        if lone:
            self._train_norms(False)
        features, logits = self.net(batch.x)
        loss = self.net.loss(logits, batch.y)
        extra = None if term is None else term(batch, features, logits)
        if extra is not None:
            loss = loss + extra
        self.derive(loss, out)
        if lone:
            self._train_norms(True)
        return loss.detach()

    def derive(self, of: Tensor, out: Tensor, slope: Tensor | None = None, *, keep: bool = False) -> None:
        """Write the gradient of a tensor (times `slope`) by the parameters to `out`; `keep` the graph."""
        if slope is not None:  # not as grad_outputs: with them torch imports half a second of sympy
            of = (of * slope).sum()
        own = self.model.own_parameters if out is self.grads else []
        wanted = [*self.model.parameters, *own] if own else self.model.parameters
        grads = torch.autograd.grad(of, wanted, retain_graph=keep, allow_unused=True)
        if own:
            grads, others = grads[: -len(own)], grads[-len(own) :]
            parts = zip(own, others, strict=True)
            flat = [torch.zeros_like(one) if part is None else part for one, part in parts]
            torch.cat([part.reshape(-1) for part in flat], out=self.own_grads)
        torch.cat(
            [self._zeros(at) if part is None else part.reshape(-1) for at, part in enumerate(grads)], out=out
        )

    def adamw(self, of: str = "", elements: int | None = None) -> AdamW:
        """Return AdamW's steps of a round, before the first."""
        m, v, root = (self.scratch(f"{of}{name}", elements) for name in ("m", "v", "root of v"))
        return AdamW(self.optimizer, (m, v, root))

    def fresh(self) -> None:
        """Remember where the dropout masks of a step begin."""
        if self._dropouts:
            self._mask = self.dropout.get_state()

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Second pass on a batch: the first one's dropout mask; BatchNorm's statistics stay as they are."""
        if self._dropouts:
            self.dropout.set_state(self._mask)
        self.model.settle()
        kept = [(tensor, tensor.clone()) for tensor in self.model.statistics if tensor.numel()]
        try:
            yield
        finally:
            for tensor, before in kept:
                tensor.copy_(before)
            self.model.restore()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode; the mode of before afterwards."""
        before = self.net.training
        self.net.eval()
        try:
            yield
        finally:
            self.net.train(before)

    @contextmanager
    def at(self, params: Tensor, buffers: Tensor | None = None) -> Iterator[None]:
        """Let the module compute with another vector of parameters (and float buffers); nothing is copied.

        May be nested: a frozen model asked for its features in the midst of a pass elsewhere.
        """
        standing = self._standing
        self._stand(self._cut(params))
        places = [] if buffers is None else self.model.floats
        before = [buffer.tensor for buffer in places]
        if buffers is not None:
            for buffer, part in zip(places, views(buffers, self.model.layouts.buffers), strict=True):
                buffer.put(part)
        try:
            yield
        finally:
            self._stand(standing)
            for buffer, tensor in zip(places, before, strict=True):
                buffer.put(tensor)

    def _parts(self, out: Tensor) -> list[Tensor]:
        return self._grad_parts if out is self.grads else self._cut(out)

    def _zeros(self, place: int) -> Tensor:
        """The gradient of a parameter that the loss does not depend on."""
        return torch.zeros(self._sizes[place], device=self.device)

    def _cut(self, vector: Tensor) -> list[Tensor]:
        """Return views in the parameters' shapes; those of scratch vectors are made once."""
        found = self._cuts.get(id(vector))
        if found is None:
            parts = torch.split(vector, self._sizes)
            found = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
            if any(vector is own for own in self._scratch.values()):
                self._cuts[id(vector)] = found
        return found

    def _stand(self, parts: list[Tensor]) -> None:
        self._standing = parts
        for parameter, view in zip(self.model.parameters, parts, strict=True):
            parameter.data = view

    def _train_norms(self, mode: bool) -> None:
        for module in self.norms:
            module.train(mode)
