"""What runs are called in a report, and in what their configurations differ. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import public
from edgeflock.lab.report.options import OF_THIS_MACHINE
from edgeflock.server.config import ServerConfig

_ELSEWHERE = {  # where a run was held says nothing of what it is
    *OF_THIS_MACHINE, "tls_cert", "tls_key", "tls_client_ca", "reflection", "data_root",
    "set", "drain_timeout", "linger", "grace", "min_updates", "public_fraction", "public_from_shards",
    "central", "init", "dashboard", "dashboard_insecure", "dashboard_host", "metrics_clients", "tensorboard",
    "track", "keep_every", "credit_mib",
}  # fmt: skip

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)")
_CELL = re.compile(r"(?:.*/)?(.+)-[0-9a-f]{12}")


def run_names(paths: Sequence[Path]) -> list[str]:
    """Return the last part of every path, as many parts as tell them apart."""
    parts = [path.absolute().parts for path in paths]
    for count in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(path) for path in paths]


def cell_names(
    names: Sequence[str], configs: Sequence[ServerConfig], given: Sequence[Collection[str]]
) -> list[str]:
    """Return for cells of a comparison, whose names end with a digest, what tells them apart instead."""
    found = [_CELL.fullmatch(name) for name in names]
    if len(names) < 2 or None in found:
        return list(names)
    told = [
        " ".join([cell[1], *(f"{key} {value}" for key, value in mine if key != "method")])
        for cell, mine in zip(filter(None, found), differences(configs, given), strict=True)
    ]
    return told if len(set(told)) == len(told) else list(names)


def order(names: Sequence[str]) -> list[int]:
    """Return the places of names in the order that people expect: numbers in them by their size."""
    return sorted(range(len(names)), key=lambda place: _parts(names[place]))


def _parts(name: str) -> list[str | float]:
    """Return a name as texts and numbers, one after the other."""
    return [float(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name))]


def differences(
    configs: Sequence[ServerConfig], given: Sequence[Collection[str]]
) -> list[list[tuple[str, str]]]:
    """Return of every run the options in which it differs from most others: flag and value.

    `given` are the options that each was given: what none was follows from the others.
    """
    found: list[list[tuple[str, str]]] = [[] for _ in configs]
    for name in [entry.name for entry in public(ServerConfig) if any(entry.name in mine for mine in given)]:
        values = [getattr(config, name) for config in configs]
        if name in _ELSEWHERE or all(value == values[0] for value in values):
            continue
        for mine, value in zip(found, values, strict=True):
            if values.count(value) <= len(values) / 2:
                mine.append((name.replace("_", " "), words(value)))
    for mine, config in zip(found, configs, strict=True):
        mine += _method_options(config, configs)
    return found


def _method_options(config: ServerConfig, configs: Sequence[ServerConfig]) -> list[tuple[str, str]]:
    """Return the method's options that differ from those of most runs of the same method."""
    same = [other.set for other in configs if other.method == config.method]
    return [
        (key, value)
        for key, value in config.set.items()
        if sum(other.get(key) == value for other in same) <= (len(same) / 2 if len(same) > 1 else 0)
    ]


def words(value: Any) -> str:
    """Return a value of a configuration for people."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={entry}" for key, entry in value.items()) or "none"
    if isinstance(value, tuple):
        return f"{len(value)} lines" if value else "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
