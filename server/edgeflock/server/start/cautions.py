"""What somebody should hear before a run begins: settings far from where its method works, in sentences."""

from __future__ import annotations

import math

from edgeflock.common import descriptors
from edgeflock.common.tuning import schedule
from edgeflock.methods.kit.base import Outlook
from edgeflock.methods.kit.options import idle, parse
from edgeflock.methods.kit.registry import load
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.build import is_partial
from edgeflock.server.start.samples import shards

_OWN_FILES = 100  # of the process itself, and of uploads, a few at a time


def cautions(config: ServerConfig) -> list[str]:
    """Return the sentences, those about the method with its name; none for most runs."""
    method = load(config.method)
    params = parse(method.params, config.set)
    said = [
        method.caution(params, outlook(config)),
        _own_shards(config),
        *idle(params),
        _own_steps(config),
        _fallen(config),
    ]
    return [*(f"{config.method}: {words}" for words in said if words), *_connections(config)]


def _connections(config: ServerConfig) -> list[str]:
    """Say of more clients than there can be connections, unless some share one."""
    most = descriptors.limit()
    if config.clients + _OWN_FILES <= most:
        return []
    return [
        f"--clients {config.clients} are more than the {most} files and connections that this process may "
        "have open at once, of which each client that is no hosted one takes one: let it have more "
        "(ulimit -n, LimitNOFILE= of a unit), or it takes no further connection when there are so many"
    ]


def outlook(config: ServerConfig) -> Outlook:
    """Return what is known of a run's rounds."""
    epochs = None if config.steps is not None else config.epochs or 1
    return Outlook(config.lr or 0.0, is_partial(config), _steps(config), epochs, config.momentum or 0.0)


def _steps(config: ServerConfig) -> float | None:
    if config.steps is not None or config.dataset is None:
        return config.steps
    held = [len(shard) for shard in shards(config)]
    batches = [math.ceil(samples / (config.batch_size or samples)) for samples in held if samples]
    return (config.epochs or 1) * sum(batches) / len(batches) if batches else 0.0


def _own_shards(config: ServerConfig) -> str:
    if not config.public_fraction:
        return ""
    return (
        "this run was begun by an earlier edgeflock, which took the server's share before it cut the data: "
        "it goes on so, with other shards than other methods have at this seed"
    )


def _own_steps(config: ServerConfig) -> str:
    """Say of steps and epochs that they are not the method's; no steps at all are."""
    given = {"--steps": config.steps or 0, "--epochs": 0 if config.epochs == 1 else config.epochs or 0}
    flags = [f"{flag} {value}" for flag, value in given.items() if value]
    if not flags or not load(config.method).own_steps:
        return ""
    return f"{flags[0]} has no effect: the method itself says how many steps a round has"


def _fallen(config: ServerConfig) -> str:
    """Say of a run that goes on beyond its schedule that its rate has fallen already."""
    rates = schedule.parse(config.schedule)
    if not rates.falls or rates.rounds >= config.rounds:
        return ""
    return (
        f"--schedule falls over {rates.rounds} rounds, as the run was begun: the rounds after them have "
        f"{rates.floor:g} times --lr"
    )
