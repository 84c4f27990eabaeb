"""The commands that hold a run again: what the server was told, and what the clients were."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from edgeflock.client.config import ClientConfig
from edgeflock.common.command.crowd import everybody, is_crowd
from edgeflock.common.command.flags import to_arguments
from edgeflock.common.command.options import public
from edgeflock.common.errors import UsageError
from edgeflock.lab.history import Client, History
from edgeflock.lab.report.options import Options
from edgeflock.lab.run.config import LabConfig, recall, usual
from edgeflock.server.config import ServerConfig, references

_CLIENTS = {entry.name: entry for entry in public(ClientConfig)}
_ALWAYS = ("method", "clients", "rounds", "seed")  # and the data: named even where they are the defaults
_ALIKE = ("threads", "parallel", "watts", "hold_out")
_TOLD = {"asked": "device", **{name: name for name in _ALIKE}}  # by a client


def commands(history: History, given: Options) -> str:
    """Return the commands, with what the run was given."""
    lab, config = recall(history.run_dir), history.config
    given = {name: getattr(config, name) for name in _ALWAYS} | given
    if config.dataset and not config.eval_data:
        given = {**given, "dataset": config.dataset}
    if len(history.training) > config.rounds:  # fewer were asked for when it went on
        given = given | {"rounds": len(history.training)}
    server = to_arguments(ServerConfig, given)
    groups = _groups(history.clients)
    if lab is not None and len(groups) < 2:
        work = {**groups[0][0]} if groups else {}
        if lab.hold_out is not None:  # which says it to all
            work.pop("hold_out", None)
        told = [f"FL_CLIENT_{name.upper()}={shlex.quote(str(value))}" for name, value in work.items()]
        return _command([*told, "fl-lab run"], [*_processes(lab, config.clients), *server])
    return "\n\n".join([_command(["fl-server"], server), *(_client(config, *group) for group in groups)])


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
    told = replace(lab, processes=None) if lab.processes == usual(clients) else lab
    return to_arguments(LabConfig, vars(told))


def _client(config: ServerConfig, work: Options, names: Sequence[str]) -> str:
    """Return the command of clients as one process: how many host them changes no bit."""
    given = {"data_root": config.data_root, **work}
    given |= {} if is_crowd(names) else {"ids": tuple(names)}
    if ":" in config.model:
        given["model"] = config.model
    if code := references(config):
        given["allow_code"] = code
    if not config.dataset:  # tables have the same columns everywhere, pictures one size
        read = {"label": config.label, "columns": config.columns, "size": config.size}
        given |= {name: value for name, value in read.items() if value}
    own = [] if config.dataset and "hold_out" not in work else ["--data=PATH"]
    own += ["--tls-ca=PATH"] if config.tls_cert else []
    own += ["--tls-cert=PATH", "--tls-key=PATH"] if config.tls_client_ca else []
    command = _command(["fl-client"], [*to_arguments(ClientConfig, given), *own])
    return f"# with --id, {everybody(names)}:\n{command}" if is_crowd(names) else command


def _command(words: Sequence[str], arguments: Sequence[str]) -> str:
    return " \\\n  ".join([*words, *map(shlex.quote, arguments)])
