"""Samples of each class at every client: as the clients said, else from the data set that is cut."""

from __future__ import annotations

from pathlib import Path

from edgeflock.common.errors import EdgeflockError, MissingData
from edgeflock.lab.history import History

Table = tuple[tuple[int, ...], ...]


def distribution(history: History, data_root: Path | None) -> Table:
    """Return the classes of every client, by seat. Raises MissingData with the reason if they are unknown."""
    if history.config.central:
        raise MissingData("the server trained on the union of the shards")
    stated = [client.classes for client in history.clients]
    if stated and all(stated):
        classes = max(map(len, stated))
        return tuple((*mine, *[0] * (classes - len(mine))) for mine in stated)
    return _computed(history, data_root)


def _computed(history: History, data_root: Path | None) -> Table:
    from edgeflock.common.datasets.kit import registry as datasets
    from edgeflock.lab.reference.partition_rows import describe

    config = history.config
    if config.task != "classification":
        raise MissingData(f"no sample of a run of {config.task} has a single class")
    if config.dataset is None:
        raise MissingData("the clients brought their own data and have not said how many of each class")
    try:
        found = describe(
            datasets.load(config.dataset, data_root or config.data_root),
            partition=config.partition,
            clients=config.clients,
            seed=config.seed,
            samples_per_client=config.samples_per_client,
            public_fraction=config.public_fraction,
            public_from_shards=config.public_from_shards,
        )
    except EdgeflockError as error:
        raise MissingData(f"the data set cannot be had: {error}") from None
    held = {client.seat: client.samples for client in history.clients if client.samples is not None}
    if any(found.rows[seat].samples != samples for seat, samples in held.items() if seat < len(found.rows)):
        raise MissingData("the clients' numbers of samples are not those of the partition: data of their own")
    return tuple(row.classes for row in found.rows)
