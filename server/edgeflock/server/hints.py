"""What was probably meant by a flag that does not exist: an option of the method."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from edgeflock.common import listing
from edgeflock.common.errors import UnknownName


def explain(arguments: Sequence[str], flag: str) -> str:
    """Return how to say it, if the flag is an option of the method that was chosen; else nothing."""
    key = flag.lstrip("-").replace("-", "_")
    if not listing.is_option(key):
        return ""
    from edgeflock.methods import load  # brings torch: only where this will be of use

    method = _value(arguments, "--method") or os.environ.get("FL_SERVER_METHOD") or "fedavg"
    try:
        names = {field.name for field in dataclasses.fields(load(method).params)}
    except UnknownName:
        return ""
    value = _value(arguments, flag) or "VALUE"
    return f"an option of {method}: give --set {key}={value}" if key in names else ""


def _value(arguments: Sequence[str], flag: str) -> str:
    """Return what stands behind a flag, as `--flag value` or `--flag=value`."""
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == flag:
            behind = "".join(arguments[position + 1 : position + 2])
            return value if equals else "" if behind.startswith("--") else behind
    return ""
