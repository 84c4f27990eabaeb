"""The commands that hold a run again: what the server was told, and what the clients were."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgeflock.client.config import ClientConfig
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.flags import to_arguments
from edgeflock.common.options import public
from edgeflock.lab.history import Client, History
from edgeflock.lab.started import LabConfig, recall
from edgeflock.server.config import ServerConfig
from edgeflock.server.resolve import resolve

_HERE = ("run_dir", "listen", "control", "log_level", "log_format", "cohort_script")  # of this one run
_SAID = {"asked": "device", "threads": "threads", "parallel": "parallel", "watts": "watts"}
_DEFAULTS = {entry.name: entry.default for entry in public(ClientConfig)}

Options = dict[str, Any]
Piece = tuple[str, str | None]  # an option, or one key of a mapping


def commands(history: History) -> str:
    """Return the commands, with every value that is not a default."""
    lab, config = recall(history.run_dir), history.config
    server = to_arguments(ServerConfig, _given(config))
    groups = _groups(history.clients)
    if lab is not None and len(groups) < 2:
        work = groups[0][0] if groups else {}
        told = [f"FL_CLIENT_{name.upper()}={shlex.quote(str(value))}" for name, value in work.items()]
        return _command([*told, "fl-lab run"], [*_processes(lab, config.clients), *server])
    return "\n\n".join([_command(["fl-server"], server), *(_client(config, *group) for group in groups)])


def _given(config: ServerConfig) -> Options:
    """Return the values that are neither defaults nor what the server makes of the others."""
    pieces = [
        (entry.name, key)
        for entry in public(ServerConfig)
        if (value := getattr(config, entry.name)) != entry.default and entry.name not in _HERE
        for key in (value if isinstance(value, Mapping) else (None,))
    ]
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
    here = {name: getattr(config, name) for name in _HERE}
    try:
        return resolve(ServerConfig(**here, **_values(config, pieces))) == config
    except EdgeflockError:
        return False


def _groups(clients: Sequence[Client]) -> list[tuple[Options, list[str]]]:
    """Return what clients were told of their work, each with those who were."""
    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for client in clients:
        said = {option: client.device.get(name) for name, option in _SAID.items()}
        work = tuple((name, value) for name, value in said.items() if value not in (None, _DEFAULTS[name]))
        groups.setdefault(work, []).append(client.name)
    return [(dict(work), names) for work, names in groups.items()]


def _processes(lab: LabConfig, clients: int) -> list[str]:
    return to_arguments(LabConfig, vars(replace(lab, processes=None) if lab.processes == clients else lab))


def _client(config: ServerConfig, work: Options, names: Sequence[str]) -> str:
    """Return the command of clients as one process: how many host them changes no bit."""
    given = {"ids": tuple(names), "data_root": config.data_root, **work}
    if ":" in config.model:
        given["model"] = config.model
    own = [] if config.dataset else ["--data=PATH"]
    return _command(["fl-client"], [*to_arguments(ClientConfig, given), *own])


def _command(words: Sequence[str], arguments: Sequence[str]) -> str:
    return " \\\n  ".join([*words, *map(shlex.quote, arguments)])
