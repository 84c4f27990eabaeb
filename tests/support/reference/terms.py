"""The extra terms of MOON, FedNTD, FedTR and FedMRUR, each with its derivatives by features and logits."""

from __future__ import annotations

import numpy as np

from support.reference.model import Extra, Labels, Term, Vector, log_softmax


def contrastive(received: Vector, past: Vector, mu: float, temperature: float) -> Term:
    """MOON: mu mean_b -log(e^{cos(z, zg)/T} / (e^{cos(z, zg)/T} + e^{cos(z, zp)/T}))."""

    def term(z: Vector, logits: Vector) -> Extra:
        near, by_near = _cosine(z, received)
        far, by_far = _cosine(z, past)
        gap = (far - near) / temperature
        wrong = 1 / (1 + np.exp(-gap))  # d log(1 + e^gap) / d gap
        slope = mu * wrong[:, None] * (by_far - by_near) / temperature / len(z)
        return Extra(mu * float(np.logaddexp(0, gap).mean()), by_features=slope)

    return term


def _cosine(z: Vector, other: Vector) -> tuple[Vector, Vector]:
    """Return cos(z, other) by row, and its derivative by z."""
    length, others = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (z, other))
    assert length.min() > 0 < others.min(), "a sample without features"
    cosine = (z * other).sum(1, keepdims=True) / (length * others)
    return cosine[:, 0], other / (length * others) - cosine * z / length**2


def not_true(y: Labels, received: Vector, beta: float, temperature: float) -> Term:
    """FedNTD: beta T^2 mean_b KL(softmax(zg'/T) || softmax(z'/T)), z' the logits without the true class."""
    n, classes = received.shape
    false = np.arange(classes) != y[:, None]

    def without(logits: Vector) -> Vector:
        return log_softmax(logits[false].reshape(n, classes - 1) / temperature)

    def term(z: Vector, logits: Vector) -> Extra:
        teacher, student = without(received), without(logits)
        value = float((np.exp(teacher) * (teacher - student)).sum(1).mean())
        slope = np.zeros_like(logits)
        slope[false] = (np.exp(student) - np.exp(teacher)).ravel() / temperature / n
        return Extra(beta * temperature**2 * value, by_logits=beta * temperature**2 * slope)

    return term


def to_centroids(y: Labels, centroids: Vector, known: Vector, lam: float) -> Term:
    """FedTR: lam mean_b known(y) ||z - C_y||^2 / f."""

    def term(z: Vector, logits: Vector) -> Extra:
        apart = (z - centroids[y]) * known[y][:, None]
        scale = lam / z.size
        return Extra(scale * float((apart**2).sum()), by_features=2 * scale * apart)

    return term


def manifold(received: Vector, gamma: float, sigma: float, beta: float) -> Term:
    """FedMRUR: gamma mean_b exp(dist/sigma), dist = -2 beta - 2 <L(z), L(zg)> in Lorentz' product.

    L(z) = (sqrt(beta + ||z||^2), z); the exponent ends at 50; float64 is wide enough for the printed form.
    """

    def term(z: Vector, logits: Vector) -> Extra:
        time, times = (np.sqrt(beta + (rows**2).sum(1, keepdims=True)) for rows in (z, received))
        dist = -2 * beta + 2 * time * times - 2 * (z * received).sum(1, keepdims=True)
        value = gamma * np.exp(np.minimum(dist / sigma, 50))
        slope = np.where(dist / sigma > 50, 0.0, value) / sigma * 2 * (times / time * z - received) / len(z)
        return Extra(float(value.mean()), by_features=slope)

    return term
