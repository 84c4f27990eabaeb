"""Checkpoints: a round's directory is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from edgeflock.common.errors import CorruptCheckpoint
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.methods.kit.values import State
from edgeflock.server.files.checkpoints import Checkpoints, Saved
from edgeflock.server.files.run_dir import write_small

LAYOUTS = ModelLayouts(
    parameters=Layout.of([("fc.weight", (2, 3)), ("fc.bias", (2,))]),
    buffers=Layout.of([("bn.running_mean", (4,))]),
    counters=Layout.of([("bn.num_batches_tracked", ())], "int64"),
)


def state(value: float = 1.0, **own: torch.Tensor) -> State:
    vectors = {
        "model": torch.full((8,), value),
        "buffers": torch.full((4,), -value),
        "counters": torch.tensor([int(value)]),
    }
    return State({**vectors, **own}, {"t": value / 3} if own else {})


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path, LAYOUTS)


def digests(saved: Saved) -> tuple[str, str]:
    return saved.model.digest, saved.state_digest


def test_a_round_comes_back_with_the_methods_own_state(checkpoints: Checkpoints) -> None:
    """Scalars in full: 1/3 is not rounded."""
    saved = checkpoints.save(3, state(1.0, momentum=torch.arange(8.0)))
    into = state(9.0, momentum=torch.zeros(8))
    loaded = checkpoints.load(3, into, digests(saved))
    assert digests(loaded) == digests(saved)
    assert torch.equal(into.vectors["momentum"], torch.arange(8.0))
    assert all(torch.equal(into.vectors[name], state(1.0).vectors[name]) for name in state().vectors)
    assert into.scalars == {"t": 1 / 3}


def test_a_method_without_state_has_one_file(checkpoints: Checkpoints) -> None:
    saved = checkpoints.save(1, state())
    assert saved.state_digest == ""
    assert os.listdir(checkpoints.path(1)) == ["model.safetensors"]


def test_the_model_has_pytorchs_names(checkpoints: Checkpoints) -> None:
    checkpoints.save(0, state(2.0))
    loaded = load_file(checkpoints.model_path(0))
    assert {name: tuple(tensor.shape) for name, tensor in loaded.items()} == {
        "fc.weight": (2, 3), "fc.bias": (2,), "bn.running_mean": (4,), "bn.num_batches_tracked": ()
    }  # fmt: skip


def test_the_same_state_has_the_same_bytes(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path / "a", LAYOUTS)
    second = Checkpoints(tmp_path / "b", LAYOUTS)
    for checkpoints in (first, second):
        checkpoints.run_dir.mkdir()
    assert digests(first.save(1, state())) == digests(second.save(1, state()))


def test_what_an_attempt_has_left_is_replaced(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, state(1.0))
    (checkpoints.root / ".tmp-000001").mkdir()
    (checkpoints.root / ".tmp-000001" / "rubbish").touch()
    saved = checkpoints.save(1, state(2.0))
    checkpoints.load(1, state(), digests(saved))
    assert os.listdir(checkpoints.root) == ["000001"]


def test_another_round_in_its_place_is_refused(checkpoints: Checkpoints) -> None:
    """Swapped directories: the files are intact, and not those that the journal names."""
    first, second = checkpoints.save(1, state()), checkpoints.save(2, state())
    assert digests(first) != digests(second)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.load(1, state(), digests(second))


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "flipped"])
def test_a_damaged_file_is_refused(checkpoints: Checkpoints, name: str, damage: str) -> None:
    saved = checkpoints.save(1, state(1.0, momentum=torch.arange(8.0)))
    path = Path(checkpoints.path(1)) / name
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        half = len(content) // 2
        flipped = content[:half] + bytes([content[half] ^ 4]) + content[half + 1 :]
        path.write_bytes({"empty": b"", "cut": content[:-9], "flipped": flipped}[damage])
    with pytest.raises(CorruptCheckpoint, match=name):
        checkpoints.load(1, state(0.0, momentum=torch.zeros(8)), digests(saved))


def test_pruning_keeps_what_is_named_and_nothing_half_made(checkpoints: Checkpoints) -> None:
    for round in range(5):
        checkpoints.save(round, state())
    (checkpoints.root / ".tmp-000009").mkdir()
    (checkpoints.root / "notes").mkdir()
    checkpoints.prune([0, 3])
    assert checkpoints.kept() == [0, 3]
    assert sorted(os.listdir(checkpoints.root)) == ["000000", "000003", "notes"]


def test_pruning_while_a_later_round_is_being_saved_leaves_it_alone(checkpoints: Checkpoints) -> None:
    for round in range(4):
        checkpoints.save(round, state())
    (checkpoints.root / ".tmp-000001").mkdir()
    (checkpoints.root / ".tmp-000004").mkdir()
    checkpoints.prune([2], upto=2)
    assert sorted(os.listdir(checkpoints.root)) == [".tmp-000004", "000002", "000003"]


def test_pruning_before_there_is_anything(checkpoints: Checkpoints) -> None:
    checkpoints.prune([0])
    assert checkpoints.kept() == []


def test_the_result_is_replaced_in_one_step(checkpoints: Checkpoints) -> None:
    checkpoints.write_result(state(1.0), torch.zeros(8))
    path = checkpoints.write_result(state(1.0), torch.arange(8.0))
    assert torch.equal(load_file(path)["fc.bias"], torch.tensor([6.0, 7.0]))
    assert os.listdir(checkpoints.run_dir) == ["model.safetensors"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made durable and what was renamed, in its order."""
    found: list[str] = []
    fsync, rename = os.fsync, os.rename

    def sync(descriptor: int) -> None:
        found.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def move(source: str | Path, target: str | Path) -> None:
        found.append(f"rename {Path(source).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", move)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_what_gets_its_name_is_durable_before_and_its_name_after(tmp_path: Path, done: list[str]) -> None:
    checkpoints = Checkpoints(tmp_path / "run", LAYOUTS)
    checkpoints.run_dir.mkdir()
    checkpoints.save(0, state(1.0, momentum=torch.zeros(8)))
    files = ["sync model.safetensors", "sync state.safetensors"]
    assert done == ["sync run", *files, "sync .tmp-000000", "rename .tmp-000000", "sync rounds"]
    done.clear()
    checkpoints.save(1, state())
    assert done == ["sync model.safetensors", "sync .tmp-000001", "rename .tmp-000001", "sync rounds"]
    done.clear()
    checkpoints.write_result(state(), torch.zeros(8))
    assert done == ["sync .tmp-model.safetensors", "rename .tmp-model.safetensors", "sync run"]
    done.clear()
    write_small(tmp_path / "run" / "run.toml", "x = 1")
    assert done == ["sync .tmp-run.toml", "rename .tmp-run.toml", "sync run"]
    assert (tmp_path / "run" / "run.toml").read_text() == "x = 1"
    done.clear()
    checkpoints.forget_after(0)
    assert (checkpoints.kept(), done) == ([0], ["sync rounds"])
