"""The client's configuration: every option with its default and range, and what follows from them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgeflock.common.client_id import checked_id, is_client_id
from edgeflock.common.command.kinds import (
    COLUMNS,
    FLAG,
    IDS,
    INTEGER,
    NUMBER,
    PATH,
    PEM,
    REFERENCES,
    SECONDS,
    TEXT,
)
from edgeflock.common.command.log import log_format_option, log_level_option
from edgeflock.common.command.options import check, option
from edgeflock.common.command.ranges import Range, above, between, one_of
from edgeflock.common.errors import BadValue, MissingData, UsageError
from edgeflock.common.plugins.loading import allow, is_reference
from edgeflock.common.wire.address import Address, parse_address, require_trust
from edgeflock.common.wire.tls import Source, read_pair

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,4})?", re.ASCII)
_PROXY = re.compile(r"http://([^@/\s]+@)?([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}/?", re.ASCII)
_WAY_TO_TLS = (
    "--config with this device's join file or --tls-ca with the authority ('fl-lab certs' makes both)"
)
EVERY_RUN, EVERY_ROUND = "run", "round"
_WHO, _DATA, _WORK, _FILES = "Who and where", "Data and model", "Training", "Files and logs"
_BACK = "The model that comes back"


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """How one client process, hosting one or many clients, takes part in a run."""

    server: str = option(
        "127.0.0.1:9300",
        TEXT,
        "address of fl-server; several, separated by commas, of it and its gates, are tried in turn",
        group=_WHO,
        metavar="ADDRESS,...",
    )
    id: str | None = option(
        None,
        TEXT,
        "name of this client, the same every time",
        group=_WHO,
        shown="that of --tls-cert, else made once for each seat of this machine",
    )
    ids: tuple[str, ...] = option(
        (), IDS, "names of several clients hosted here, instead of --id", group=_WHO
    )
    host_clients: int = option(
        1,
        INTEGER,
        "clients hosted here; --id host0 gives host0-0, host0-1, ...",
        group=_WHO,
        allowed=between(1, 100_000, "an integer"),
    )
    tls: bool = option(
        False, FLAG, "talk TLS with a server that an authority of the system vouches for", group=_WHO
    )
    tls_ca: Source | None = option(
        None, PEM, "talk TLS; the authority that vouches for the server (PEM)", group=_WHO
    )
    tls_cert: Source | None = option(
        None, PEM, "this device's certificate, if the server asks for one (PEM)", group=_WHO
    )
    tls_key: Source | None = option(None, PEM, "its private key (PEM)", group=_WHO)
    insecure: bool = option(False, FLAG, "allow plain text beyond this machine", group=_WHO)
    proxy: str | None = option(
        None,
        TEXT,
        "HTTP proxy through which the server is reached",
        group=_WHO,
        allowed=Range(
            lambda url: bool(_PROXY.fullmatch(url)), "http://host:port, or http://user:password@host:port"
        ),
        metavar="URL",
        shown="none: what the environment says of proxies does not count",
    )
    stay: bool = option(False, FLAG, "wait for the next run when this one is over", group=_WHO)
    give_up_after: float = option(
        43200.0,
        SECONDS,
        "exit when no server was reached for so long (never with --stay)",
        group=_WHO,
        allowed=above(0, "a time"),
    )

    data: Path | None = option(
        None,
        PATH,
        "own data: an .npz with x and y, a folder with x.npy and y.npy, a .csv or .parquet or a folder of "
        "them, a folder of images, or your own package.module:factory; {id} stands for the hosted client's "
        "id, {index} for the number at its end",
        group=_DATA,
        metavar="SOURCE",
    )
    label: tuple[str, ...] = option(
        (), COLUMNS, "column of --data, a table, that holds the labels", group=_DATA, shown="no labels"
    )
    columns: tuple[str, ...] = option(
        (),
        COLUMNS,
        "columns of --data, a table, that are the samples, in this order",
        group=_DATA,
        shown="all but the label",
    )
    hold_out: float = option(
        0.0,
        NUMBER,
        "share of --data that is kept for tests and not trained on, where the data bring no test part",
        group=_DATA,
        allowed=Range(lambda share: 0 <= share < 1, "a share from 0 to below 1"),
        metavar="SHARE",
    )
    refresh: str = option(
        EVERY_RUN,
        TEXT,
        "when --data are asked for again: for every run, with --stay, or for every round",
        group=_DATA,
        allowed=one_of(EVERY_RUN, EVERY_ROUND),
    )
    size: int | None = option(
        None,
        INTEGER,
        "side in pixels that images of --data are resized to",
        group=_DATA,
        allowed=between(1, 4096, "a number of pixels"),
        shown="all are of one size",
        metavar="PIXELS",
    )
    data_root: Path | None = option(
        None,
        PATH,
        "folder with data sets in their official formats",
        group=_DATA,
        shown="~/.cache/edgeflock",
        metavar="DIR",
    )
    model: str | None = option(
        None,
        TEXT,
        "your own package.module:factory, if the run has a model of its own",
        group=_DATA,
        metavar="NAME",
    )

    allow_code: tuple[str, ...] = option(
        (),
        REFERENCES,
        "foreign code, as package.module:NAME, that a run may name and this device then loads; what is "
        "installed with an entry point needs no such word",
        group=_DATA,
        shown="none",
    )

    save_model: Path | None = option(
        None,
        PATH,
        "fetch the run's model when it is over and keep it here, DIR/current the newest; {id} as with --data",
        group=_BACK,
        metavar="DIR",
        shown="the model stays at the server",
    )
    save_which: str = option(
        "final",
        TEXT,
        "which model: that of the run's end, or the best one, also whenever a better one is known",
        group=_BACK,
        allowed=Range(lambda name: name in ("final", "best"), "final or best"),
        metavar="[final|best]",
    )
    keep_models: int = option(
        3, INTEGER, "versions that are kept", group=_BACK, allowed=between(1, 10_000, "an integer")
    )
    on_model: str | None = option(
        None,
        TEXT,
        "command to run when there is a new one: words, no shell; $EDGEFLOCK_MODEL names the file",
        group=_BACK,
        metavar="CMD",
        shown="none",
    )

    device: str = option(
        "auto",
        TEXT,
        "where to compute",
        group=_WORK,
        allowed=Range(lambda name: bool(_DEVICE.fullmatch(name)), "auto, cpu, cuda, cuda:N or mps"),
        metavar="DEVICE",
    )
    threads: int = option(
        1, INTEGER, "threads of each training", group=_WORK, allowed=between(1, 1024, "an integer")
    )
    parallel: int = option(
        1, INTEGER, "hosted clients that train at a time", group=_WORK, allowed=between(1, 1024, "an integer")
    )

    watts: float | None = option(
        None,
        NUMBER,
        "what this device draws at work, for its energy if it has no sensor that can be read",
        group=_WORK,
        allowed=above(0, "a number of watts"),
        shown="energy is not known",
    )

    state_dir: Path | None = option(
        None,
        PATH,
        "directory of this client's state",
        group=_FILES,
        shown="~/.local/state/edgeflock/<id>; without --id the first free seat: default, default-2, ...",
        metavar="DIR",
    )
    log_level: str = log_level_option(_FILES)
    log_format: str = log_format_option(_FILES)


def resolve(config: ClientConfig, environ: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return the configuration checked as a whole, with the state directory of a named client filled in.

    Without a name and a directory it stays None: the client takes a seat below `state_home`.

    Raises UsageError or MissingData with a sentence.
    """
    check(config)
    config = _with_certified_name(_with_trust(config))
    if config.model is not None and ":" not in config.model:
        raise BadValue(
            "--model", config.model, "package.module:factory; the run names a model of the package by itself"
        )
    for reference in config.allow_code:
        allow(reference, "--allow-code")
    _check_names(config)
    _check_data(config)
    _check_saving(config)
    if config.state_dir is None and (name := config.id or next(iter(config.ids), "")):
        return replace(config, state_dir=state_home(environ) / name)
    return config


def _with_trust(config: ClientConfig) -> ClientConfig:
    """Return the configuration with TLS on if any of its files is named; plain text has to be said."""
    tls = config.tls or bool(config.tls_ca or config.tls_cert or config.tls_key)
    if tls and config.insecure:
        raise UsageError("--insecure is for plain text: it contradicts --tls and the files of TLS")
    for address in addresses(config):
        require_trust(address, "--server", tls or config.insecure, _WAY_TO_TLS)
        if config.proxy and address.path:
            raise UsageError(f"--proxy has no use: {address.target} is a socket of this machine")
    return replace(config, tls=tls)


def _with_certified_name(config: ClientConfig) -> ClientConfig:
    """Return the configuration with the name of the device's certificate, unless it was told one."""
    if config.id is not None or config.ids:
        return config
    pair = read_pair(config.tls_cert, config.tls_key)
    names = (name for name in (pair.names if pair else ()) if is_client_id(name))
    return replace(config, id=next(names, None))


def addresses(config: ClientConfig) -> tuple[Address, ...]:
    """Return where the run is reached; raises BadValue."""
    return tuple(parse_address(text.strip(), "--server") for text in config.server.split(","))


def hosted_ids(config: ClientConfig) -> tuple[str, ...]:
    """Return the ids of the hosted clients; empty if a single one is to be made in the state directory."""
    if config.ids:
        return config.ids
    if config.id is None:
        return ()
    return with_numbers(config.id, config.host_clients)


def with_numbers(name: str, count: int) -> tuple[str, ...]:
    """Return host0-0, host0-1 ... for host0, or the name itself for one."""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(count))


def data_path(config: ClientConfig, client_id: str) -> Path | None:
    """Return the hosted client's own data, with {id} and {index} in the given path replaced."""
    return _placed("--data", config.data, client_id)


def model_path(config: ClientConfig, client_id: str) -> Path | None:
    """Return where the hosted client keeps models, likewise."""
    return _placed("--save-model", config.save_model, client_id)


def _placed(flag: str, path: Path | None, client_id: str) -> Path | None:
    if path is None:
        return None
    text = str(path)
    if "{index}" in text:
        number = re.search(r"(\d+)$", client_id)
        if not number:
            raise BadValue(flag, text, f"{{index}} only if ids end in a number, and {client_id!r} does not")
        text = text.replace("{index}", number[1])
    return Path(text.replace("{id}", client_id))


def _check_names(config: ClientConfig) -> None:
    if config.ids and (config.id is not None or config.host_clients != 1):
        raise UsageError("--ids names all hosted clients: give neither --id nor --host-clients beside it")
    if len(set(config.ids)) != len(config.ids):
        raise BadValue("--ids", ",".join(config.ids), "every id once")
    for name in hosted_ids(config):
        checked_id(name, "--ids" if config.ids else "--id")


def _check_data(config: ClientConfig) -> None:
    if config.data_root is not None and not config.data_root.is_dir():
        raise MissingData(f"--data-root {str(config.data_root)!r} is not a directory")
    for name in hosted_ids(config) or (("",) if "{" not in str(config.data) else ()):
        path = data_path(config, name)
        if path is not None and not (path.exists() or is_reference(str(path))):
            raise MissingData(f"--data {str(path)!r} does not exist")


def _check_saving(config: ClientConfig) -> None:
    path, names = config.save_model, hosted_ids(config)
    if path is None:
        given = {
            "--on-model": config.on_model is not None,
            "--save-which": config.save_which != "final",
            "--keep-models": config.keep_models != 3,
        }
        if flag := next((flag for flag, there in given.items() if there), ""):
            raise UsageError(f"{flag} has no use without --save-model DIR")
        return
    if (len(names) > 1 or config.host_clients > 1) and "{" not in str(path):
        raise BadValue("--save-model", str(path), "a path with {id} in it where several clients are hosted")
    for name in names:
        model_path(config, name)
    _check_command(config.on_model)


def _check_command(text: str | None) -> None:
    try:
        words = shlex.split(text or "")
    except ValueError as error:
        raise BadValue("--on-model", text, f"a command and its words ({error})") from None
    if text is not None and (not words or shutil.which(words[0]) is None):
        raise BadValue("--on-model", text, "a command that there is, with its words")


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where state directories are made that have no other place; raises UsageError."""
    given = environ.get("XDG_STATE_HOME", "")
    if given.startswith("/"):
        return Path(given) / "edgeflock"
    try:
        return Path.home() / ".local" / "state" / "edgeflock"
    except RuntimeError:  # neither HOME nor an entry in the list of users, as in some containers
        raise UsageError("this user has no home directory: give --state-dir, or set XDG_STATE_HOME") from None
