"""Rules across options of a run: defaults of the method, what excludes what, what a method demands."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

from edgeflock.common.command import extras
from edgeflock.common.command.kinds import duration, ends
from edgeflock.common.command.options import check, public
from edgeflock.common.command.settings_file import identity_difference
from edgeflock.common.datasets.kit import augment
from edgeflock.common.errors import BadValue, EdgeflockError, MissingData, UnknownName, UsageError
from edgeflock.common.models.kit import registry as models
from edgeflock.common.partitions.kit import assign
from edgeflock.common.payload import choice
from edgeflock.common.payload.package import Kind
from edgeflock.common.plugins.loading import is_reference, named
from edgeflock.common.run import CUSTOM
from edgeflock.common.scores import LOSS, Metric
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.common.tasks.kit.marking import figure_of
from edgeflock.common.tuning import adapters, optimizer, schedule
from edgeflock.common.wire.address import EVERYWHERE, Address, parse_address, require_trust
from edgeflock.common.wire.key import read_key
from edgeflock.common.wire.listen import listen_at
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.options import parse, texts
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.config import (
    ServerConfig,
    default_run_dir,
    gate_address,
    listen_address,
    references,
    takes_gates,
)
from edgeflock.server.core import target
from edgeflock.server.costs import budget, clock
from edgeflock.server.files.run_dir import require_place
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.service import certificates
from edgeflock.server.start.hints import owners_of

_TESTER = "fedavg"  # the method of a run that trains nothing
_HIGHEST_LR = 1e6
_TRAINING = {
    "lr": 0.05,
    "lr_decay": 1.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "batch_size": 32,
    "epochs": 1,
}


def resolve(config: ServerConfig) -> ServerConfig:
    """Return the configuration with every default filled in; resolving it again changes nothing.

    Raises UsageError or MissingData with a sentence.
    """
    check(config)
    for reference in references(config):
        named(reference)
    method = load(config.method)
    config = _with_method_options(config, method)
    config = _with_budget(config, method)
    config = _with_names(config)
    config = _with_task(config, method)
    config = _with_steps(config, method)
    config = _with_training(config, method)
    config = _with_cohort(config)
    config = _with_participation(config, method)
    config = _with_central(config, method)
    config = _with_clock(config)
    config = _with_public(config, method)
    config = _with_init(config)
    _check_evaluation(config)
    _check_rate(config)
    _check_network(config)
    _check_files(config)
    return replace(config, run_dir=config.run_dir or default_run_dir(config.method))


def combine(given: Mapping[str, Any]) -> ServerConfig:
    """Return the resolved configuration of the values that were given.

    The run.toml of an existing run directory stands below them, so that a directory alone resumes its run.
    Raises UsageError with a sentence, also for a run that these values would make another run.
    """
    run_dir = given.get("run_dir")
    path = Path(run_dir) / "run.toml" if run_dir is not None else None
    if (tested := given.get("evaluate_only")) is not None and (path is None or not path.exists()):
        given = {**_of_saved(tested, given), **given}
    if path is None or not path.exists():
        nothing: dict[str, Any] = {"dataset": None} if {"eval_data", "input_shape"} & {*given} else {}
        return resolve(ServerConfig(**{**nothing, **given}))
    old = from_toml(path)
    _check_method(run_dir, old, given)
    new = resolve(replace(old, **_over(old, given)))
    if difference := identity_difference(old, new):
        raise UsageError(f"{run_dir} holds another run, different in {difference}: give another --run-dir")
    return new


def _of_saved(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a saved model says of itself, as far as it is one that says so, as options of a run."""
    from edgeflock.common import saved

    try:
        recipe = saved.recipe_of(path)
    except EdgeflockError:  # weights of another kind: their model is named by the operator
        return {"rounds": 1}
    model, found = recipe.model, {"rounds": 1, "model_arg": dict(recipe.model.arguments)}
    for name, text, own in (
        ("model", model.name, model.name == CUSTOM),
        ("task", model.task, is_reference(model.task)),
    ):
        if own and name not in given:  # a file alone makes nothing be imported
            known = recipe.own if name == "model" else text
            raise UsageError(f"{path} is of a {name} of your own: name it, --{name} {known}")
        found |= {} if own else {name: text}
    if not {"dataset", "eval_data"} & {*given}:
        found |= {"input_shape": "x".join(map(str, model.input_shape)), "classes": model.classes}
    return found


def _check_method(run_dir: object, old: ServerConfig, given: Mapping[str, Any]) -> None:
    """Refuse another method before its options are read: those of the run are none of that method."""
    asked = given.get("method", old.method)
    load(named(asked))  # a name that is none is told so
    if asked != old.method:
        raise UsageError(
            f"{run_dir} holds a run of {old.method}, --method is {asked}: leave --method away to go on "
            "with it, or give another --run-dir"
        )


def _over(old: ServerConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given, as changes of `old`: epochs and steps replace each other, mappings merge."""
    changes = dict(given)
    for name, other in (("epochs", "steps"), ("steps", "epochs")):
        if name in given and other not in given:
            changes[other] = None
    for name in ("set", "model_arg", "budget"):
        if name in given:
            changes[name] = {**getattr(old, name), **given[name]}
    return changes


def _with_method_options(config: ServerConfig, method: Method) -> ServerConfig:
    try:
        params = parse(method.params, config.set)
    except UnknownName as error:
        if owners := owners_of(error.name):
            raise UsageError(f"{error}; of {', '.join(owners)} it is one") from None
        if error.name not in {entry.name for entry in public(ServerConfig)}:
            raise
        flag = f"--{error.name.replace('_', '-')} {config.set[error.name]}"
        raise UsageError(f"{error.name} is an option of the run, for every method: {flag}") from None
    share: dict[str, Any] = {_share_of(config): getattr(params, "public_fraction", 0.0)}
    return replace(config, set=texts(params), **share)


def _share_of(config: ServerConfig) -> str:
    """Return which of the two shares a run has; one begun by an earlier edgeflock keeps its shards."""
    return "public_fraction" if config.public_fraction else "public_from_shards"


def _with_budget(config: ServerConfig, method: Method) -> ServerConfig:
    """Take the method's own limits where the run sets none; check all."""
    own = method.budget(parse(method.params, config.set))
    limits = {**{name: duration(limit) for name, limit in own.items()}, **config.budget}
    budget.parse(limits)
    return replace(config, budget=limits)


def _with_names(config: ServerConfig) -> ServerConfig:
    """Check the names of model, partition, codecs ...; write them in the one way they are compared in."""
    if ":" not in config.model and config.model not in models.known():
        raise UnknownName("model", config.model, models.known())
    up, down = choice.parse(config.codec), choice.parse(config.codec_down)
    if choice.for_kind(down, Kind.MODEL) != down:
        raise BadValue(
            "--codec-down", config.codec_down, f"{', '.join(choice.ABSOLUTE)}, each optionally with +zstd"
        )
    scheme, changed = assign.parse(config.partition), augment.parse(config.augment)
    scheme.check(config.clients)
    return replace(config, codec=str(up), codec_down=str(down), partition=str(scheme), augment=str(changed))


def _with_task(config: ServerConfig, method: Method) -> ServerConfig:
    """Check what is learned, and what its models are judged by; write the target without its sign."""
    task = tasks.load(config.task)(config.classes or 2)
    if method.classes and not task.classes:
        raise UsageError(f"{method.name} {method.classes}: --task {config.task} has no class for each sample")
    if not task.flippable and augment.parse(config.augment).moves:
        raise UsageError(f"--augment changes pictures alone, and not what {config.task} is to make of them")
    figure_of(task.metrics, config.watch)
    target.parse(config.target, (*task.metrics, LOSS))
    classes = config.classes
    if config.input_shape and not classes:
        classes = task.asked_by(tuple(map(int, config.input_shape.split("x"))))
    limits = {target.plain(name): limit for name, limit in config.target.items()}
    return replace(config, classes=classes, target=limits)


def judged_by(task: str, watch: str) -> Metric:
    """Return what the models of a run are judged by."""
    return figure_of(tasks.load(named(task))(2).metrics, watch)


def training_defaults(method: Method) -> dict[str, Any]:
    """Return the training options of a run in which nobody says anything."""
    own = {name: getattr(method.training, name) for name in _TRAINING}
    return {name: default if own[name] is None else own[name] for name, default in _TRAINING.items()}


def _with_steps(config: ServerConfig, method: Method) -> ServerConfig:
    """Write schedule and optimizer in the one way they are compared in; fill what AdamW wants otherwise."""
    adapter = adapters.parse(config.adapter or "")
    config = replace(config, adapter=None if adapter is None else str(adapter))
    steps, rates = optimizer.parse(config.client_optimizer), schedule.parse(config.schedule)
    config = replace(config, client_optimizer=str(steps), schedule=str(rates.over(config.rounds)))
    schedule.parse(config.schedule)  # a warm-up may take all its rounds
    if not steps.adaptive:
        return config
    if not method.any_optimizer:
        able = ", ".join(name for name in names() if load(name).any_optimizer)
        raise BadValue(
            optimizer.FLAG,
            config.client_optimizer,
            f"sgd with {method.name}, whose mathematics need SGD's steps; adamw goes with {able}",
        )
    if config.momentum:
        raise BadValue("--momentum", config.momentum, "0 with adamw, which has moments of its own")
    lr = optimizer.ADAMW_LR if config.lr is None else config.lr
    return replace(config, momentum=0.0, lr=lr)


def _with_training(config: ServerConfig, method: Method) -> ServerConfig:
    """Fill what was not said: with the method's own default, else the run's."""
    if config.epochs is not None and config.steps is not None:
        raise UsageError("--epochs and --steps exclude each other: give one of them")
    changes = {
        name: value for name, value in training_defaults(method).items() if getattr(config, name) is None
    }
    if config.steps is not None:
        changes.pop("epochs", None)
    config = replace(config, **changes)
    if config.lr == 0 and config.steps != 0:
        raise BadValue("--lr", config.lr, "a number > 0 (0 only with --steps 0)")
    if method.own_momentum and config.momentum != 0:
        raise BadValue(
            "--momentum", config.momentum, f"0 with {method.name}, which has a momentum of its own"
        )
    return config


def _with_cohort(config: ServerConfig) -> ServerConfig:
    if ends(config.cohort)[1] > config.clients:
        raise BadValue("--cohort", config.cohort, f"at most --clients, which is {config.clients}")
    if config.participation == "roster":
        config = replace(config, cohort=config.cohort or config.clients)
    if config.cohort_script is not None:
        config = replace(config, cohort_lines=read_cohort_script(config.cohort_script))
    _check_script(config)
    _, most = ends(config.cohort)
    if most and most + config.over_select > config.clients:
        allowed = f"at most --clients - --cohort, which is {config.clients - most}"
        raise BadValue("--over-select", config.over_select, allowed)
    return config


def _check_script(config: ServerConfig) -> None:
    """Hold a cohort script to what goes with it."""
    if not config.cohort_lines:
        return
    if config.participation == "online":
        raise UsageError("--cohort-script needs --participation roster: it names clients of the fixed roster")
    if isinstance(config.cohort, str):
        raise UsageError(f"--cohort-script names every cohort: --cohort is {config.cohort}, give one of them")
    lines = len(config.cohort_lines)
    if lines < config.rounds:
        raise UsageError(f"--cohort-script has {lines} lines, one per round, --rounds is {config.rounds}")


def least_members(config: ServerConfig) -> int:
    """Return how many clients a round asks at least."""
    least, _ = ends(config.cohort)
    return min((len(line.split()) for line in config.cohort_lines), default=least or config.clients)


def _with_participation(config: ServerConfig, method: Method) -> ServerConfig:
    """Fill min_updates; hold a method that needs everybody to that."""
    members = least_members(config)
    if config.min_updates > members:
        of = "the least of the cohort" if isinstance(config.cohort, str) else "the cohort"
        raise BadValue("--min-updates", config.min_updates, f"at most {of}, which is {members}")
    if not method.full_participation:
        return replace(config, min_updates=config.min_updates or (members + 1) // 2)
    every = f"{method.name} needs every client in every round"
    if config.participation == "online":
        raise UsageError(f"{every}: --participation online is refused")
    if members < config.clients:
        given = (
            "--cohort-script leaves a client out" if config.cohort_lines else f"--cohort is {config.cohort}"
        )
        raise UsageError(f"{every}: {given} of --clients {config.clients}")
    if config.min_updates not in (0, config.clients):
        raise UsageError(f"{every}: --min-updates is {config.min_updates}, allowed is {config.clients}")
    return replace(config, min_updates=config.clients)


def _with_central(config: ServerConfig, method: Method) -> ServerConfig:
    """Hold a run without clients to what it can mean."""
    config = replace(config, central=method.central)
    if not method.central:
        return config
    if config.keep_local:
        raise UsageError(f"{method.name} has no clients that could keep something: --keep-local is refused")
    alone = f"{method.name} trains on the server, where no client is contacted"
    if config.dataset is None:
        raise UsageError(
            f"{alone}: it needs the union of a named data set's shards, give --dataset "
            "(data of the clients' own stay with them)"
        )
    if config.cohort_lines:
        raise UsageError(f"{alone}: --cohort-script names cohorts")
    asked = {
        "--participation": (config.participation, "roster"),
        "--cohort": (config.cohort, config.clients),
        "--over-select": (config.over_select, 0),
    }
    for flag, (value, allowed) in asked.items():
        if value != allowed:
            raise UsageError(f"{alone}: {flag} is {value}, allowed is {allowed}")
    return replace(config, min_updates=1)


def _with_clock(config: ServerConfig) -> ServerConfig:
    """Write the simulated clock with its means, by which runs are compared."""
    found = clock.parse(config.clock, central=config.central)
    return config if found is None else replace(config, clock=str(found))


def _with_public(config: ServerConfig, method: Method) -> ServerConfig:
    """Settle which data the server trains and scores on, if the method does."""
    given = {
        flag: path
        for flag, path in (("--public-data", config.public_data), ("--score-data", config.score_data))
        if path is not None
    }
    for flag, path in given.items():
        if not method.public_data:
            raise UsageError(f"{method.name} has no use for data on the server: {flag} is refused")
        if not path.is_file():
            raise MissingData(f"{flag} {str(path)!r} is not a file")
    if "--score-data" in given and config.set.get("score_set") == "test":
        raise UsageError("--score-data and --set score_set=test exclude each other: give one of them")
    if method.public_data and config.dataset is None and config.public_data is None:
        raise UsageError(
            f"{method.name} trains on the server, too: without --dataset it needs --public-data FILE.npz"
        )
    return replace(
        config,
        public_fraction=0.0 if config.public_data else config.public_fraction,
        public_from_shards=0.0 if config.public_data else config.public_from_shards,
        public_data_sha256=content_digest(config.public_data) if config.public_data else None,
        score_data_sha256=content_digest(config.score_data) if config.score_data else None,
    )


def _with_init(config: ServerConfig) -> ServerConfig:
    """Note what the starting weights are; of a run that has begun its books know it."""
    flag = "--init"
    if config.evaluate_only is not None:
        flag, config = "--evaluate-only", replace(config, init=config.evaluate_only, tests_only=True)
    if config.tests_only and config.every and config.rounds == 1:
        raise UsageError("--every with --evaluate-only asks again and again: --rounds says how often")
    if config.tests_only and (config.method != _TESTER or not config.eval_every):
        other = f"--method {config.method}" if config.method != _TESTER else "--eval-every 0"
        raise UsageError(f"--evaluate-only trains nothing and tests in every round: {other} contradicts it")
    if config.init is None:
        return config
    if not config.init.is_file():
        raise MissingData(f"{flag} {str(config.init)!r} is not a file")
    return replace(config, init_sha256=content_digest(config.init))


def content_digest(path: Path) -> str:
    """Return what tells two files apart, whatever they are called, or two folders."""
    try:
        if path.is_dir():
            found = ((file.relative_to(path), file) for file in sorted(path.rglob("*")) if file.is_file())
            told = "".join(f"{name.as_posix()}\0{content_digest(file)}\n" for name, file in found)
            return hashlib.sha256(told.encode()).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MissingData(f"cannot read {str(path)!r}: {error.strerror}") from None


def read_cohort_script(path: Path) -> tuple[str, ...]:
    """Return the ids of every round's cohort, one line each, separated by one blank.

    Raises UsageError or MissingData with a sentence.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise MissingData(f"cannot read --cohort-script {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--cohort-script {str(path)!r} is not UTF-8 text") from None
    for number, line in enumerate(lines, start=1):
        ids = line.split()
        if not ids:
            raise UsageError(
                f"--cohort-script {str(path)!r}: line {number} is empty, every line names a cohort"
            )
        if len(set(ids)) < len(ids):
            raise UsageError(f"--cohort-script {str(path)!r}: line {number} names a client twice")
    if not lines:
        raise UsageError(f"--cohort-script {str(path)!r} is empty")
    return tuple(" ".join(line.split()) for line in lines)


def _check_rate(config: ServerConfig) -> None:
    """Refuse a rate that grows out of bounds; one that shrinks has a floor (learner.LEAST_LR)."""
    lr, growth = config.lr or 0.0, config.lr_decay or 1.0
    if lr and growth > 1 and math.log(lr) + (config.rounds - 1) * math.log(growth) > math.log(_HIGHEST_LR):
        allowed = f"a factor with which --lr {lr:g} stays below {_HIGHEST_LR:g} in {config.rounds} rounds"
        raise BadValue("--lr-decay", growth, allowed)


def _check_evaluation(config: ServerConfig) -> None:
    if config.target and not config.eval_every:
        raise UsageError("--target needs evaluations: --eval-every is 0")
    if config.stop_after and not config.eval_every:
        raise UsageError("--stop-after needs evaluations: --eval-every is 0")
    if config.eval_devices and not config.eval_every:
        raise UsageError("--eval-devices needs evaluations: --eval-every is 0")
    if config.eval_devices and config.central:
        raise UsageError(f"{config.method} has no clients: --eval-devices has nobody to ask")
    if config.eval_clients in ("local", "both") and not config.eval_every:
        raise UsageError(f"--eval-clients {config.eval_clients} needs evaluations: --eval-every is 0")
    if config.eval_train and not config.eval_every:
        raise UsageError("--eval-train needs evaluations: --eval-every is 0")
    if config.eval_train and config.dataset is None:
        raise UsageError("--eval-train needs the training samples of a named data set: give --dataset")
    if config.eval_clients == "both" and config.dataset is None:
        raise UsageError("--eval-clients both needs the test samples of a named data set: give --dataset")
    if config.eval_clients in ("local", "both") and config.central:
        raise UsageError(f"{config.method} has no clients: --eval-clients is {config.eval_clients}")


def _check_network(config: ServerConfig) -> None:
    listen = listen_address(config)
    certified = certificates.read(config) is not None
    require_trust(listen, "--listen", config.insecure or certified, _way_to_tls(listen))
    if config.reflection:
        extras.require("--reflection", "grpc_reflection")
    if config.reflection and not listen.local:
        raise UsageError(f"--reflection is for development on one machine: --listen is {listen.target}")
    _check_gates(config, listen)
    listen_at(config.dashboard, config.dashboard_insecure)
    if config.control is not None:
        _check_control(parse_address(config.control, "--control", any_port=True))


def _check_gates(config: ServerConfig, listen: Address) -> None:
    if not takes_gates(config):
        if config.gate_key is not None:
            raise UsageError("--gate-key has no use without --gates or --gate-listen")
        return
    flag = "--gates" if config.gates else "--gate-listen"
    if listen.path:
        raise UsageError(
            f"{flag} needs a --listen that others can be found beside: {listen.target} is a socket"
        )
    if config.central:
        raise UsageError(f"{flag} has no use: {config.method} trains on the server")
    if "bytes" in config.budget:
        raise UsageError(
            f"{flag} does not go with --budget bytes: what passes at a gate is known here only after it"
        )
    if config.gate_key is not None:
        read_key(config.gate_key, "--gate-key")
    if (address := gate_address(config)) is not None:
        safe = config.insecure or config.tls_cert is not None
        require_trust(address, "--gate-listen", safe, _way_to_tls(address))


def here_only(config: ServerConfig) -> str:
    """Return why devices cannot connect, if `:port` could not mean every interface; else nothing."""
    listen = listen_address(config)
    if not (config.listen.startswith(":") and listen.local):
        return ""
    return (
        f"--listen {config.listen} without TLS is this machine alone: for devices give "
        f"{_way_to_tls(listen.with_host(EVERYWHERE))}, or --insecure if every machine of the network "
        "is trusted"
    )


def _way_to_tls(listen: Address) -> str:
    """Return the flags that are missing, and the command that makes their files."""
    name = gethostname() if listen.everywhere else listen.host
    return (
        "--tls-cert certs/server.pem --tls-key certs/server-key.pem "
        f"(which 'fl-lab certs certs --server {name}' makes)"
    )


def _check_control(control: Address) -> None:
    if not control.local:
        raise BadValue("--control", control.target, "a loopback address or unix:path")


def _check_files(config: ServerConfig) -> None:
    if config.data_root is not None and not config.data_root.is_dir():
        raise MissingData(f"--data-root {str(config.data_root)!r} is not a directory")
    if config.eval_data is not None and not config.eval_data.exists():
        raise MissingData(f"--eval-data {str(config.eval_data)!r} is not a file or folder")
    if config.dataset is None and config.eval_data is None and not (config.input_shape and config.classes):
        if config.input_shape:
            raise UsageError(
                f"--input-shape alone does not say how many outputs {config.task} has: give --classes"
            )
        raise UsageError(
            "neither --dataset nor --eval-data is given: one of them says what a sample looks like, "
            "or else --input-shape and --classes do"
        )
    if config.input_shape and (config.dataset or config.eval_data):
        given = "--dataset" if config.dataset else "--eval-data"
        raise UsageError(f"--input-shape is for runs without data on the server: {given} says it already")
    if config.run_dir is not None:
        require_place(config.run_dir)
