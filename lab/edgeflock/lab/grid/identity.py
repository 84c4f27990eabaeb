"""What makes a cell of a grid another one: every option of its run but those listed here, each with why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from edgeflock.common.command.options import options
from edgeflock.server.config import ServerConfig

_PLACE, _SEEN, _LONG = "where it is, not what it is", "only what people see of it", "how it ends, not in what"

NO_MATTER: Mapping[str, str] = {
    "rounds": "a run goes on to more of them, and of one that has more the first ones are taken",
    "data_root": "the same data sets lie elsewhere",
    "cohort_script": "its lines count",
    "public_data": "its content counts",
    "score_data": "its content counts",
    "init": "its content counts",
    "evaluate_only": "its content counts, and that nothing is trained",
    "max_clients_wait": "a run that came to its end did not wait so long",
    "run_dir": "every cell has its own",
    "listen": _PLACE,
    "tls_cert": _PLACE,
    "tls_key": _PLACE,
    "tls_client_ca": _PLACE,
    "insecure": _PLACE,
    "control": _PLACE,
    "gate_listen": _PLACE,
    "gate_key": _PLACE,
    "reflection": _SEEN,
    "dashboard": _SEEN,
    "dashboard_insecure": _SEEN,
    "dashboard_host": _SEEN,
    "metrics_clients": _SEEN,
    "tensorboard": _SEEN,
    "track": _SEEN,
    "log_level": _SEEN,
    "log_format": _SEEN,
    "same_code": "which clients take part, as every other reason to refuse one",
    "keep_every": "which models stay on the disk, not what they are",
    "drain_timeout": _LONG,
    "linger": _LONG,
}
"""Options that change neither a run's model nor a figure of it; whatever is not here does."""

SINCE: Mapping[str, Any] = {
    "adapter": None,
    "augment": "none",
    "client_optimizer": "sgd",
    "classes": 0,
    "clock": "real",
    "columns": (),
    "eval_devices": False,
    "eval_models": 1,
    "eval_train": 0,
    "every": 0.0,
    "gates": 0,
    "grace": 60.0,
    "init_sha256": None,
    "input_shape": None,
    "keep_local": None,
    "label": (),
    "schedule": "constant",
    "size": None,
    "stop_after": 0,
    "tests_only": False,
    "task": "classification",
    "train": None,
    "watch": None,
}
"""Options that runs were held without, with the value that does what those did: it makes no other cell."""

_OWN_BEFORE: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "fedadm": ({"batches": "own"}, {"clock": "real"})
}
"""The same of a method's own options, and beside them those that were its own and are the run's now."""

_UP_TO_0_1 = (
    "method", "set", "clients", "cohort", "participation", "cohort_lines", "seed", "model", "model_arg",
    "dataset", "partition", "samples_per_client", "public_data_sha256", "score_data_sha256",
    "public_fraction", "central", "epochs", "steps", "batch_size", "lr", "momentum", "weight_decay",
    "lr_decay", "over_select", "codec", "codec_down", "eval_data",
)  # fmt: skip


def digest(config: ServerConfig, lab: Mapping[str, Any], axes: Collection[str] = ()) -> str:
    """Return what tells a cell from all others: all that its outcome depends on, and what the grid varies."""
    varied = {axis: getattr(config, axis) for axis in axes if axis not in lab}
    return _of({**varied, **_counted(config), **lab})


def digest_before(config: ServerConfig, lab: Mapping[str, Any], axes: Collection[str]) -> str:
    """Return the digest that cells had when budgets, evaluations and deadlines did not count."""
    counted = {*_UP_TO_0_1, *(axis for axis in axes if axis not in lab)}
    return _of({name: getattr(config, name) for name in sorted(counted)} | dict(lab))


def difference(there: ServerConfig, here: ServerConfig) -> str:
    """Return what changes the outcome and is not the same, for people; empty if nothing is."""
    before, now = _counted(there), _counted(here)
    flags = {entry.name: entry.flag for entry in options(ServerConfig)}
    return ", ".join(
        f"{flags[name]} ({before.get(name, SINCE.get(name))} there, {now.get(name, SINCE.get(name))} here)"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )


def _counted(config: ServerConfig) -> dict[str, Any]:
    found = {entry.name: getattr(config, entry.name) for entry in options(config)}
    found["eval_data"] = _content(config.eval_data)
    found["set"] = _own(config)
    as_before = {name for name, value in SINCE.items() if found[name] == value}
    return {name: value for name, value in found.items() if name not in NO_MATTER and name not in as_before}


def _own(config: ServerConfig) -> Mapping[str, str]:
    """Return the method's options, as cells of before have them if they do the same."""
    since, gone = _OWN_BEFORE.get(config.method, ({}, {}))
    if config.clock != SINCE["clock"] or not since.items() <= config.set.items():
        return config.set
    return {**{name: text for name, text in config.set.items() if name not in since}, **gone}


def _content(path: Path | None) -> str | None:
    """Return what a file or folder holds; of one that is not there any more, what it was called."""
    from edgeflock.server.start.resolve import content_digest  # brings torch

    if path is None:
        return None
    return content_digest(path) if path.exists() else str(path)


def _of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]
