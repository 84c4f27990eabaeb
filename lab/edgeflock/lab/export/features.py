"""Features of test samples, as models of a run see them: a map of them in two dimensions, by t-SNE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from edgeflock.common.errors import BadData, MissingData, UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.lab.export.model import OpenedRun, fill
from edgeflock.lab.history import History
from edgeflock.lab.plots.cloud import Cloud

_BATCH = 256
_PERPLEXITY = 30.0
_STATE = re.compile(r"state-(\d{6,})\.safetensors")
_OWN = ("own model", "history", "model")  # what clients keep their last model as: every method, fedtrip, moon
_BUFFERS = ("own buffers", "buffers")


@dataclass(frozen=True)
class FeatureView:
    """What one model makes of the samples."""

    title: str
    features: np.ndarray[Any, np.dtype[np.float32]]
    classes: tuple[int, ...]
    accuracy: float


@dataclass(frozen=True)
class OwnModel:
    """A client's own model, as its state holds it."""

    round: int  # of its participation
    params: Tensor
    buffers: Tensor | None


def samples(opened: OpenedRun, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return some of the run's test samples, the same for every model of it."""
    chosen = np.random.default_rng(seed).permutation(len(opened.test.y))[:count]
    places = torch.from_numpy(np.sort(chosen))
    return opened.test.x[places], opened.test.y[places]


def seen(title: str, net: Net, x: Tensor, y: Tensor) -> FeatureView:
    """Return the features of samples, and how many of them the model recognises."""
    parts, hits = [], 0
    with torch.no_grad():
        for start in range(0, len(x), _BATCH):
            features, logits = net.eval()(x[start : start + _BATCH])
            parts.append(features.flatten(1).numpy())
            hits += int(net.hits(logits, y[start : start + _BATCH]))
    return FeatureView(title, np.concatenate(parts), tuple(y.tolist()), hits / len(y))


def mapped(one: FeatureView, seed: int) -> Cloud:
    """Return the samples where t-SNE puts them: near each other if their features are."""
    from sklearn.manifold import TSNE

    if not np.isfinite(one.features).all():
        raise BadData(f"{one.title}: its features are not finite")
    perplexity = min(_PERPLEXITY, max(1.0, (len(one.features) - 1) / 3))
    places = TSNE(init="pca", perplexity=perplexity, random_state=seed, n_jobs=1).fit_transform(one.features)
    return Cloud(one.title, places[:, 0].tolist(), places[:, 1].tolist(), one.classes)


# -------------------------------------------------------------------------------- clients' own models


def kept_models(history: History, client: str) -> list[OwnModel]:
    """Return the models that a client's state holds, the last participation at the end.

    Raises MissingData with what would have kept one.
    """
    if client not in (known := [one.name for one in history.clients]):
        raise UsageError(f"--client {client!r}: the clients of this run are {', '.join(known)}")
    found = sorted(_models(history, client), key=lambda one: one.round)
    if not found:
        raise MissingData(
            f"{client} has kept no model of its own below {history.run_dir / 'clients'}: clients do with "
            "--eval-clients local where rounds ask a part of them, and with fedtrip and moon"
        )
    return found


def _models(history: History, client: str) -> Iterator[OwnModel]:
    for path in history.run_dir.glob(f"clients/*/clients/{client}/runs/{history.run_id}/state-*.safetensors"):
        if _STATE.fullmatch(path.name) and (made := _read(path)) is not None:
            yield made


def _read(path: Path) -> OwnModel | None:
    """Return the model in a state file, None if it holds none."""
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            own = next((name for name in _OWN if name in names), None)
            buffers = next((name for name in _BUFFERS if name in names), None)
            round = int((file.metadata() or {}).get("round", 0))
            if own is None:
                return None
            return OwnModel(round, file.get_tensor(own), file.get_tensor(buffers) if buffers else None)
    except (OSError, SafetensorError, ValueError) as error:
        raise BadData(f"{path} cannot be read: {error}") from None


def as_of(found: Sequence[OwnModel], client: str, round: int | None) -> OwnModel:
    """Return the model that a client had after a round, that of its last participation up to there."""
    if round is None:
        return found[-1]
    fitting = [one for one in found if one.round <= round]
    if not fitting:
        known = ", ".join(str(one.round) for one in found)
        raise MissingData(
            f"{client} keeps its models of rounds {known}, not that of round {round} or before: "
            f"ask when round {round} is done, and go on with more --rounds then"
        )
    return fitting[-1]


def own_net(opened: OpenedRun, net: Net, kept: OwnModel) -> Net:
    """Fill a net with a client's own model; buffers that it has not kept are those of the run's result."""
    flat = FlatModel(net)
    vectors = dict(opened.learner.result_state().vectors)
    if kept.params.numel() != flat.params.numel():
        raise BadData(f"a client's model has {kept.params.numel()} numbers, the run's {flat.params.numel()}")
    if kept.buffers is not None and kept.buffers.numel() == flat.buffers.numel():
        vectors["buffers"] = kept.buffers
    fill(flat, kept.params, vectors)
    return net
