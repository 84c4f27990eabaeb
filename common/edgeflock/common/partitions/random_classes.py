"""random-classes:K: every client holds K classes drawn at random, all clients equally many samples.

The draws know nothing of each other (pFedMo's Fig. 4): a class that nobody draws is held by nobody, and its
samples are not used. A class that several drew is cut equally among them, so no sample is held twice. From
each of his classes a client takes as many as the most wanted class can give to each of those who drew it.
"""

from __future__ import annotations

import numpy as np

from edgeflock.common.command.ranges import at_least
from edgeflock.common.errors import BadValue
from edgeflock.common.partitions.kit.base import Indices, Number, Pool, Scheme, Shards


def split(pool: Pool, each: float) -> Shards:
    count, number = len(pool.classes), int(each)
    if number > count:
        raise BadValue("classes per client", number, f"at most the {count} classes that there are")
    drawn = [_draw(pool, client, number) for client in range(pool.shards)]
    holders = {
        label: [client for client, labels in enumerate(drawn) if label in labels] for label in pool.classes
    }
    pieces = {label: _cut(pool, label, clients) for label, clients in holders.items() if clients}
    most = number * min(len(piece) for mine in pieces.values() for piece in mine.values())
    size = min(pool.samples or most, most)
    return [_take(client, drawn[client], pieces, size) for client in range(pool.shards)]


def _draw(pool: Pool, client: int, number: int) -> list[int]:
    order = pool.random("random-classes", "client", client).permutation(np.array(pool.classes))
    return [int(label) for label in order[:number]]


def _cut(pool: Pool, label: int, clients: list[int]) -> dict[int, Indices]:
    """Cut a class into equal pieces for those who drew it; what is left over is not used."""
    samples = pool.random("random-classes", "class", label).permutation(pool.of_class(label))
    each = len(samples) // len(clients)
    return {client: samples[place * each : (place + 1) * each] for place, client in enumerate(clients)}


def _take(client: int, labels: list[int], pieces: dict[int, dict[int, Indices]], size: int) -> Indices:
    """Take so many samples of a client's classes, of each as many as of any other, give or take one."""
    each, more = divmod(size, len(labels))
    taken = [pieces[label][client][: each + (place < more)] for place, label in enumerate(labels)]
    return np.concatenate(taken)


SCHEME = Scheme(
    "random-classes",
    "K classes drawn at random per client, equal sizes; a class that nobody draws is held by nobody",
    split,
    Number("K", whole=True, range=at_least(1, "a whole number")),
    sized=True,
    leaves_out=True,
)
