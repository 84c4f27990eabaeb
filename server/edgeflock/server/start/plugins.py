"""The foreign code that a run names, as it is here: what clients compare theirs with."""

from __future__ import annotations

from collections.abc import Container

from edgeflock.common.datasets.kit import augment
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.models.kit import registry as models
from edgeflock.common.partitions.kit.registry import schemes
from edgeflock.common.plugins.digest import Code, of_run
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.methods.kit import registry as methods
from edgeflock.server.config import ServerConfig, names


def code_of(config: ServerConfig) -> tuple[Code, ...]:
    """Return the code behind every name of the run that is none of edgeflock's own."""
    own: dict[str, Container[str]] = {
        "methods": methods.names(),
        "models": models.names(),
        "datasets": datasets.entries(),
        "partitions": schemes(),
        "tasks": tasks.names(),
        "transforms": augment.own(),
    }
    custom = ":" in config.model
    said = [*names(config), *([] if custom else [("models", config.model)])]
    foreign = [(kind, name) for kind, name in said if name not in own[kind]]
    return of_run(foreign, config.model if custom else "")
