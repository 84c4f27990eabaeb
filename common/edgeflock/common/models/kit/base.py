"""Net: what every model offers: features and outputs, its loss, what adds up to its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from torch import Tensor, nn

from edgeflock.common.tasks.classification import TASK
from edgeflock.common.tasks.kit.base import LearningTask


class Net(nn.Module):
    """A model whose forward returns (features, logits); features are the flattened input of the head."""

    features: int  #: length of one sample's feature vector
    head_name = "head"  #: the sub-module that turns features into logits, the last Linear
    foreign = False  #: somebody else's: what its code does with its buffers is not known
    constant: frozenset[str] = frozenset()  #: the buffers that no training step changes: they never travel
    kept: frozenset[str] = (
        frozenset()
    )  #: parameters and buffers that are every client's own, and never travel
    still: tuple[nn.Module, ...] = ()  #: parts that work in training as in a test: frozen normalisations
    task: LearningTask = TASK(0)  #: what it is trained for; set by whoever builds it
    tasks: tuple[str, ...] = ()  #: the only ones that it is for; empty: any that its outputs fit
    tokens = False  #: it takes whole numbers, and no others
    gives: tuple[int, ...] = ()  #: the shape of its outputs for one sample; empty: one number for each class

    if TYPE_CHECKING:  # nn.Module's own call is untyped

        def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over the batch: the task's, unless the model has one of its own."""
        return self.task.loss(logits, y)

    def gradient_by_hand(self, x: Tensor, y: Tensor, out: Sequence[Tensor]) -> Tensor | None:
        """Write the gradient of `loss` to `out`, one tensor per parameter; return the loss without a graph.

        None: the model leaves it to autograd. For models so small that autograd's overhead counts; same bits.
        """
        return None

    def hits(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the number of correct predictions, an integer tensor without dimensions."""
        return (logits.argmax(1) == y).sum()

    def answer(self, logits: Tensor) -> Tensor | None:
        """Return what its outputs say of samples, where that is its own affair; None: as the task has it."""
        return None

    def bare(self) -> nn.Module:
        """Return the module as who wrote it has it: samples in; (features, logits) out, or logits alone."""
        return self

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for part in self.still:
            part.training = False
        return self

    def sums(self, logits: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Return what adds up to the task's metrics; of a model with hits of its own these alone."""
        if type(self).hits is not Net.hits:
            return {"hits": self.hits(logits, y)}
        return self.task.sums(logits, y)

    def head_names(self) -> tuple[str, ...]:
        """Return the names of the head's parameters that are trained together; all others are the body."""
        trained = (name for name, parameter in self.named_parameters() if parameter.requires_grad)
        shared = (name for name in trained if name not in self.kept)
        return tuple(name for name in shared if name.startswith(f"{self.head_name}."))
