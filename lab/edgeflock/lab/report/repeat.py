"""The commands that hold a run again: what the server was told, and what the clients were."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from edgeflock.client.config import ClientConfig
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.common.flags import to_arguments
from edgeflock.common.options import public
from edgeflock.lab.history import Client, History
from edgeflock.lab.started import LabConfig, recall
from edgeflock.server.config import ServerConfig
from edgeflock.server.resolve import combine

_OF_THIS_MACHINE = ("run_dir", "listen", "insecure", "control", "log_level", "log_format")
_CLIENTS = {entry.name: entry for entry in public(ClientConfig)}
_TOLD = {"asked": "device", "threads": "threads", "parallel": "parallel", "watts": "watts"}  # by a client

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
        if (value := getattr(config, entry.name)) != entry.default and entry.name not in _OF_THIS_MACHINE
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
    here = {name: getattr(config, name) for name in _OF_THIS_MACHINE if name != "run_dir"}
    try:
        return replace(combine({**here, **_values(config, pieces)}), run_dir=config.run_dir) == config
    except (EdgeflockError, OSError):  # a file that it names may lie elsewhere
        return False


def _groups(clients: Sequence[Client]) -> list[tuple[Options, list[str]]]:
    """Return what clients were told of their work, each with those who were."""
    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for client in clients:
        groups.setdefault(tuple(_work(client).items()), []).append(client.name)
    return [(dict(work), names) for work, names in groups.items()]


def _work(client: Client) -> Options:
    """Return the options that a client says it was given; what fl-client would refuse is left out."""
    found: Options = {}
    for said, name in _TOLD.items():
        with suppress(UsageError):
            found[name] = _CLIENTS[name].load(client.device.get(said), name)
    return {name: value for name, value in found.items() if value != _CLIENTS[name].default}


def _processes(lab: LabConfig, clients: int) -> list[str]:
    return to_arguments(LabConfig, vars(replace(lab, processes=None) if lab.processes == clients else lab))


def _client(config: ServerConfig, work: Options, names: Sequence[str]) -> str:
    """Return the command of clients as one process: how many host them changes no bit."""
    given = {"ids": tuple(names), "data_root": config.data_root, **work}
    if ":" in config.model:
        given["model"] = config.model
    own = [] if config.dataset else ["--data=PATH"]
    own += ["--tls-ca=PATH"] if config.tls_cert else []
    return _command(["fl-client"], [*to_arguments(ClientConfig, given), *own])


def _command(words: Sequence[str], arguments: Sequence[str]) -> str:
    return " \\\n  ".join([*words, *map(shlex.quote, arguments)])
