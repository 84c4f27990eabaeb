"""The options that a run was given: its configuration without what the server makes of them by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgeflock.common.command.options import public
from edgeflock.common.errors import EdgeflockError
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import combine

OF_THIS_MACHINE = ("run_dir", "listen", "insecure", "control", "log_level", "log_format")

Options = dict[str, Any]
Piece = tuple[str, str | None]  # an option, or one key of a mapping


def given(config: ServerConfig) -> Options:
    """Return the values that are neither defaults nor what the server makes of the others."""
    pieces = [
        (entry.name, key)
        for entry in public(ServerConfig)
        if (value := getattr(config, entry.name)) != entry.default and entry.name not in OF_THIS_MACHINE
        for key in (value if isinstance(value, Mapping) else (None,))
    ]
    if config.dataset and config.eval_data:  # which by itself says that there is no data set
        pieces.append(("dataset", None))
    for piece in pieces.copy():
        fewer = [other for other in pieces if other != piece]
        if _is_same(config, fewer):
            pieces = fewer
    return _values(config, pieces)


def _values(config: ServerConfig, pieces: Sequence[Piece]) -> Options:
    values: Options = {}
    for name, key in pieces:
        value = getattr(config, name)
        values[name] = value if key is None else {**values.get(name, {}), key: value[key]}
    return values


def _is_same(config: ServerConfig, pieces: Sequence[Piece]) -> bool:
    """Whether these values make the same run."""
    here = {name: getattr(config, name) for name in OF_THIS_MACHINE if name != "run_dir"}
    try:
        return replace(combine({**here, **_values(config, pieces)}), run_dir=config.run_dir) == config
    except (EdgeflockError, OSError):  # a file that it names may lie elsewhere
        return False
