"""The MLP of the reference in float64: one hidden layer of ReLU units, cross entropy, gradients by hand.

A term adds to the loss something that depends on features (the input of the last layer) and logits; it
brings its own derivatives, which a test compares with finite differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Labels = NDArray[np.int64]


class Extra(NamedTuple):
    """A term's value and its derivatives by features and by logits."""

    value: float
    by_features: Vector = np.zeros(())
    by_logits: Vector = np.zeros(())


Term = Callable[[Vector, Vector], Extra]


@dataclass(frozen=True)
class Data:
    """Samples: x (n, inputs), y (n)."""

    x: Vector
    y: Labels

    def __len__(self) -> int:
        return len(self.y)


def log_softmax(logits: Vector) -> Vector:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


def softmax(logits: Vector) -> Vector:
    return np.asarray(np.exp(log_softmax(logits)))


def no_term(features: Vector, logits: Vector) -> Extra:
    return Extra(0.0)


@dataclass(frozen=True)
class Net:
    """Widths; the parameters are one flat vector W1, b1, W2, b2, a layer's weight being (outputs, inputs)."""

    inputs: int
    hidden: int
    classes: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names as in a model file of the product, in the vector's order."""
        return {
            "hidden.0.weight": (self.hidden, self.inputs),
            "hidden.0.bias": (self.hidden,),
            "head.weight": (self.classes, self.hidden),
            "head.bias": (self.classes,),
        }

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    @property
    def body(self) -> int:
        """Parameters below the last layer, which come first."""
        return self.hidden * (self.inputs + 1)

    def flat(self, tensors: Mapping[str, ArrayLike]) -> Vector:
        """Join the tensors of a model file."""
        assert set(tensors) == set(self.shapes), sorted(tensors)
        parts = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in tensors.items()}
        assert {name: part.shape for name, part in parts.items()} == self.shapes
        return np.concatenate([parts[name].ravel() for name in self.shapes])

    def parts(self, w: Vector) -> list[Vector]:
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        pieces = np.split(w, np.cumsum(sizes)[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def forward(self, w: Vector, x: Vector) -> tuple[Vector, Vector]:
        """Return features and logits."""
        w1, b1, w2, b2 = self.parts(w)
        features = np.maximum(x @ w1.T + b1, 0.0)
        return features, features @ w2.T + b2

    def features(self, w: Vector, x: Vector) -> Vector:
        return self.forward(w, x)[0]

    def logits(self, w: Vector, x: Vector) -> Vector:
        return self.forward(w, x)[1]

    def loss(self, w: Vector, data: Data, term: Term = no_term) -> float:
        """Return the mean cross entropy, plus the term."""
        features, logits = self.forward(w, data.x)
        picked = log_softmax(logits)[np.arange(len(data)), data.y]
        return float(-picked.mean()) + term(features, logits).value

    def gradient(self, w: Vector, data: Data, term: Term = no_term) -> Vector:
        """Return the gradient of `loss`."""
        features, logits = self.forward(w, data.x)
        extra = term(features, logits)
        by_logits = softmax(logits)
        by_logits[np.arange(len(data)), data.y] -= 1
        by_logits = by_logits / len(data) + extra.by_logits
        by_features = by_logits @ self.parts(w)[2] + extra.by_features
        before = by_features * (features > 0)
        return np.concatenate(
            [(before.T @ data.x).ravel(), before.sum(0), (by_logits.T @ features).ravel(), by_logits.sum(0)]
        )
