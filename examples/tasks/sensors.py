"""Readings of phones that people wear, for three tasks: regression, multilabel, autoencoder.

phones.csv: 90 windows of 2.56 s of each of six people, 15 numbers of the accelerometer and one of the
gyroscope, each scaled to [-1, 1]; an excerpt of "Human Activity Recognition Using Smartphones"
(J. Reyes-Ortiz, D. Anguita, A. Ghio, L. Oneto, X. Parra, 2013, UCI Machine Learning Repository, data set 240;
CC BY 4.0).

    fl-lab run --task regression --client-data sensors:turning --input-shape 15 --classes 1 \
        --clients 6 --lr 0.1

    fl-lab run --task multilabel --client-data sensors:doing --input-shape 15 --classes 3 \
        --clients 6 --lr 0.3

    fl-lab run --task autoencoder --client-data sensors:lying --input-shape 15 --classes 15 \
        --clients 6 --lr 0.1 --model-arg hidden=4
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Four = tuple[Floats, Floats, Floats, Floats]  # x, y, x_test, y_test

WALKING, UP, DOWN, SITTING, STANDING, LYING = range(1, 7)  # what people did


def turning(client: str) -> Four:
    """How fast the phone turns, from its accelerometer alone."""
    _, numbers = _person(client)
    return _parted(numbers[:, :15], numbers[:, 15])


def doing(client: str) -> Four:
    """Does somebody move, take stairs, stand upright? Any of these, or none."""
    did, numbers = _person(client)
    yes = np.stack([did <= DOWN, (did == UP) | (did == DOWN), did != LYING], axis=1)
    return _parted(numbers[:, :15], yes.astype(np.float32))


def lying(client: str) -> tuple[Floats, None, Floats, None]:
    """What rest looks like: what is far from it later is worth an alarm. No labels are needed."""
    did, numbers = _person(client)
    still = numbers[did >= SITTING, :15]
    x, _, x_test, _ = _parted(still, still)
    return x, None, x_test, None


def _person(client: str) -> tuple[NDArray[np.int64], Floats]:
    """Return what a client's person did, and the readings; c0 is the first, c6 the first again."""
    with Path(__file__).with_name("phones.csv").open() as file:
        rows = np.array(list(csv.reader(file))[1:], np.float32)
    mine = rows[rows[:, 0] == int(client.strip("c")) % 6]
    return mine[:, 1].astype(np.int64), mine[:, 2:]


def _parted(x: Floats, y: Floats) -> Four:
    """Keep every fourth sample for tests."""
    kept = np.arange(len(x)) % 4 == 3
    return x[~kept], y[~kept], x[kept], y[kept]
