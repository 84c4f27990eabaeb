"""FedAvg's and FedProx's local round of a one-hidden-layer MLP, by hand in plain NumPy (float64)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def local_round(
    start: Vector,
    widths: tuple[int, int, int],
    batches: Iterable[tuple[Vector, NDArray[np.int64]]],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip: float = 0.0,
    mu: float = 0.0,
) -> Vector:
    """Return w_K - w_0 after one step per batch.

    g <- grad F + mu (w - w_0) + decay w, scaled to norm `clip` if longer; v <- momentum v + g; w <- w - lr v.
    """
    w, v = start.copy(), np.zeros_like(start)
    for x, y in batches:
        g = gradient(w, widths, x, y) + mu * (w - start) + weight_decay * w
        length = np.sqrt(np.sum(g * g))
        if clip and length > clip:
            g = g * (clip / length)
        v = momentum * v + g
        w = w - lr * v
    return w - start


def gradient(w: Vector, widths: tuple[int, int, int], x: Vector, y: NDArray[np.int64]) -> Vector:
    """Return the gradient of the mean cross entropy: W1, b1, W2, b2 flattened one after the other."""
    logits = forward(w, widths, x)[1]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    wrong = powers / powers.sum(1, keepdims=True)
    wrong[np.arange(len(y)), y] -= 1
    return backward(w, widths, x, wrong / len(y))


def forward(w: Vector, widths: tuple[int, int, int], x: Vector) -> tuple[Vector, Vector]:
    """Return features and logits."""
    w1, b1, w2, b2 = _parts(w, widths)
    features = np.maximum(x @ w1.T + b1, 0)
    return features, features @ w2.T + b2


def backward(
    w: Vector, widths: tuple[int, int, int], x: Vector, logits: Vector, features: Vector | float = 0.0
) -> Vector:
    """Return the gradient of a loss, from its derivatives by logits and, besides, by features."""
    w2, z = _parts(w, widths)[2], forward(w, widths, x)[0]
    back = (logits @ w2 + features) * (z > 0)
    return np.concatenate([(back.T @ x).ravel(), back.sum(0), (logits.T @ z).ravel(), logits.sum(0)])


def _parts(w: Vector, widths: tuple[int, int, int]) -> tuple[Vector, Vector, Vector, Vector]:
    inputs, hidden, classes = widths
    w1, b1, w2, b2 = np.split(w, np.cumsum([hidden * inputs, hidden, classes * hidden]))
    return w1.reshape(hidden, inputs), b1, w2.reshape(classes, hidden), b2
