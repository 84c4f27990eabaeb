"""What was probably meant by a flag that does not exist: an option of the method."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeflock.common import listing
from edgeflock.common.errors import UsageError
from edgeflock.common.plugins.loading import named

if TYPE_CHECKING:
    from edgeflock.methods.kit.base import Method


def explain(arguments: Sequence[str], flag: str) -> str:
    """Return how to say it, if the flag is an option of a method; else nothing."""
    key = flag.lstrip("-").replace("-", "_")
    if not listing.is_option(key):
        return ""
    from edgeflock.methods.kit.registry import load  # brings torch: only where this will be of use

    method = _value(arguments, "--method") or os.environ.get("FL_SERVER_METHOD") or "fedavg"
    try:
        mine = key in _options(load(named(method)))
    except UsageError:
        return ""
    way = f"--set {key}={_value(arguments, flag) or 'VALUE'}"
    if mine:
        return f"an option of {method}: give {way}"
    owners = owners_of(key)
    return (
        f"an option of {', '.join(owners)}, not of {method}: give --method {owners[0]} {way}"
        if owners
        else ""
    )


def owners_of(key: str) -> list[str]:
    """Return the methods that have an option."""
    from edgeflock.methods.kit.registry import load, names  # brings torch: only where this will be of use

    return [name for name in names() if key in _options(load(name))]


def _options(method: Method) -> set[str]:
    return {field.name for field in dataclasses.fields(method.params)}


def _value(arguments: Sequence[str], flag: str) -> str:
    """Return what stands behind a flag, as `--flag value` or `--flag=value`."""
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == flag:
            behind = "".join(arguments[position + 1 : position + 2])
            return value if equals else "" if behind.startswith("--") else behind
    return ""
