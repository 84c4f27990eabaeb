"""What every task promises with every method and codec: the same bits whatever restarts and arrives when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.models.kit.registry import build
from edgeflock.common.tasks.kit.registry import load as task_of
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.registry import load, names
from support.contract import Trial

SIZES = (20, 9, 14)
NUMBERS = ("regression", "multilabel", "autoencoder")  # a row of numbers for each sample
TASKS = (*NUMBERS, "segmentation", "next-token")
CODECS = ("identity", "fp16", "bf16", "int8", "topk:0.2", "fp16+zstd")
METHODS = [name for name in names() if not load(name).classes and not load(name).central]


class Letters(nn.Module):
    """Numbers for every token at every position."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(tokens, 6), nn.Linear(6, tokens)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.table(x))
        return made


def net_of(name: str) -> Callable[[], Net]:
    def made(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Net:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return adapt(make(), shape, "own", task_of(name)(3))

    if name in NUMBERS:
        arguments = {"hidden": "8"}
        return lambda: build(
            "mlp", input_shape=(3,), classes=3, arguments=arguments, seed=3, task=task_of(name)(3)
        )
    if name == "segmentation":
        return lambda: made(lambda: nn.Conv2d(1, 3, 3, padding=1), (1, 4, 4))
    return lambda: made(lambda: Letters(3), (6,))


def data_of(name: str) -> Sequence[LocalData]:
    """Return samples of every client, as the task has them."""
    draw, found = torch.Generator().manual_seed(5), []
    for size in SIZES:
        x = torch.randn(size, 3, generator=draw)
        if name == "segmentation":
            x = torch.randn(size, 1, 4, 4, generator=draw)
            y = torch.randint(-1, 3, (size, 4, 4), generator=draw)
        elif name == "next-token":
            x = torch.randint(0, 3, (size, 6), generator=draw)
            y = torch.randint(-1, 3, (size, 6), generator=draw)
        else:
            y = (torch.randn(size, 3, generator=draw) > 0).float() if name == "multilabel" else x.flip(1)
        task = task_of(name)(3)
        found.append(LocalData(*task.tensors(x.numpy(), y.numpy(), tokens=task.tokens)))
    return found


def trial(folder: Path, name: str, method: str, codec: str) -> Trial:
    shape = {"segmentation": (1, 4, 4), "next-token": (6,)}.get(name, (3,))
    return Trial(folder, method, net=net_of(name), data=data_of(name), codec=codec, shape=shape, classes=3)


def keeps_its_promises(folder: Path, name: str, method: str, codec: str) -> None:
    """Three rounds, once at a stretch, once with both ends restarted and updates in another order."""
    straight, cut = (trial(folder / how, name, method, codec) for how in ("straight", "cut"))
    begun = straight.model
    for _ in range(3):
        played = straight.round()
        assert not played.rejected
        again = cut.round(arrivals=(2, 0, 1))
        assert again.digests == played.digests
        cut.restart_server()
        cut.restart_clients()
    assert bool(straight.model.isfinite().all())
    assert not torch.equal(straight.model, begun)


@pytest.mark.parametrize(
    ("name", "method", "codec"),
    [
        ("regression", "fedavg", "identity"),
        ("multilabel", "scaffold", "int8"),
        ("autoencoder", "feddyn", "topk:0.2"),
        ("segmentation", "fedprox", "fp16+zstd"),
        ("next-token", "moon", "bf16"),
    ],
)
def test_a_task_has_the_same_bits_whatever_restarts(
    tmp_path: Path, name: str, method: str, codec: str
) -> None:
    keeps_its_promises(tmp_path, name, method, codec)


@pytest.mark.long
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_every_task_has_the_same_bits_with_every_method_that_takes_it(
    tmp_path: Path, name: str, method: str
) -> None:
    keeps_its_promises(tmp_path, name, method, "identity")


@pytest.mark.long
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_task_has_the_same_bits_with_every_codec(tmp_path: Path, name: str, codec: str) -> None:
    keeps_its_promises(tmp_path, name, "fedavg", codec)
