"""Starting weights from a file: what fits, the sentence for what does not, a run that needs it only once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from edgeflock.common.errors import BadData, EdgeflockError, MissingData, UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.payload import tensorfile, tensorheader
from edgeflock.methods.kit import registry
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.checkpoints import MODEL_VECTORS
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.start import weights
from edgeflock.server.start.resolve import combine, content_digest, resolve
from edgeflock.server.start.startup import build, taken_up
from support.training import normed_bench


def flat_of(name: str = "linear", seed: int = 1, shape: tuple[int, ...] = (1, 8, 8)) -> FlatModel:
    return FlatModel(models.build(name, input_shape=shape, classes=10, seed=seed))


def vectors(flat: FlatModel) -> list[torch.Tensor]:
    return [flat.params, flat.buffers, flat.counters]


def written(path: Path, flat: FlatModel) -> Path:
    """Write a model as a run writes its result."""
    own = {"model": flat.params, "buffers": flat.buffers, "counters": flat.counters}
    tensorfile.write(path, [(flat.layouts.of(name), own[name]) for name in MODEL_VECTORS], {})
    return path


def file(path: Path, tensors: Sequence[tuple[str, str, tuple[int, ...]]], data: bytes) -> Path:
    path.write_bytes(tensorheader.make(tensors, {}) + data)
    return path


def test_a_model_is_filled_with_all_that_its_file_holds(tmp_path: Path) -> None:
    other, flat = normed_bench().model, normed_bench().model
    for vector in vectors(other):
        vector.add_(3)
    assert all(vector.numel() for vector in vectors(other))
    weights.put(written(tmp_path / "m", other), flat.module, "mine")
    assert all(map(torch.equal, vectors(flat), vectors(other)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_kinds_of_floats_are_rounded_to_ours(tmp_path: Path, dtype: torch.dtype) -> None:
    flat, values = flat_of(), torch.randn(650).to(dtype)
    specs = [(spec.name, str(dtype).removeprefix("torch."), spec.shape) for spec in flat.layout.tensors]
    data = values.view(torch.uint8).numpy().tobytes()
    weights.put(file(tmp_path / "m", specs, data), flat.module, "linear")
    assert torch.equal(flat.params, values.float())


TURNED, COUNTS = ("head.weight", "float32", (64, 10)), ("head.weight", "int64", (10, 64))
WEIGHT, BIAS = ("head.weight", "float32", (10, 64)), ("head.bias", "float32", (10,))


@pytest.mark.parametrize(
    ("tensors", "size", "sentence"),
    [
        ([WEIGHT], 2560, "lacks the tensor head.bias, 10 in linear"),
        ([TURNED, BIAS], 2600, "has the tensor head.weight as 64x10, in linear it is 10x64"),
        ([COUNTS, BIAS], 5160, "has the tensor head.weight of int64, in linear it is of float32"),
        ([WEIGHT, BIAS, ("tail", "float32", ())], 2604, "has the tensor tail, which linear has not"),
        ([WEIGHT, BIAS], 2599, "is shorter than its tensor head.bias"),
    ],
)
def test_the_first_tensor_that_does_not_fit_is_named(
    tmp_path: Path, tensors: list[tuple[str, str, tuple[int, ...]]], size: int, sentence: str
) -> None:
    path = file(tmp_path / "m", tensors, bytes(size))
    with pytest.raises(BadData) as refused:
        weights.put(path, flat_of().module, "linear")
    assert str(refused.value) == f"--init {str(path)!r} {sentence}"


def test_numbers_that_are_none_and_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    sick = flat_of()
    sick.params[7] = float("nan")
    with pytest.raises(BadData, match=r"has NaN or infinity in the tensor head\.weight"):
        weights.put(written(tmp_path / "sick", sick), flat_of().module, "linear")
    large = [(spec.name, "float64", spec.shape) for spec in flat_of().layout.tensors]
    huge = torch.full((650,), 1e300, dtype=torch.float64).numpy().tobytes()
    with pytest.raises(BadData, match="has NaN or infinity in the tensor"):
        weights.put(file(tmp_path / "huge", large, huge), flat_of().module, "linear")
    (tmp_path / "text").write_text("weights")
    with pytest.raises(BadData, match="is not a safetensors file"):
        weights.put(tmp_path / "text", flat_of().module, "linear")
    for entry in (
        {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [0], "data_offsets": [0.5, 0]},
    ):
        header = json.dumps({"a": entry}).ljust(64).encode()
        (tmp_path / "odd").write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(BadData, match="has a damaged header"):
            weights.put(tmp_path / "odd", flat_of().module, "linear")
    with pytest.raises(MissingData, match=r"cannot read --init .*: Is a directory"):
        weights.put(tmp_path, flat_of().module, "linear")


@pytest.mark.parametrize("method", registry.names())
def test_every_method_begins_with_the_weights_of_the_file(tmp_path: Path, method: str) -> None:
    """What a method keeps of the first model (w_best, x_r, a mean) is that one, too."""
    other = flat_of("mlp", seed=9)
    built = build(resolve(ServerConfig(method=method, init=written(tmp_path / "m", other))))
    state = built.learner.state
    assert torch.equal(state.model, other.params)
    kept = [vector for vector in state.vectors.values() if vector.shape == other.params.shape]
    assert all(torch.equal(vector, other.params) or bool((vector == vector[0]).all()) for vector in kept)


def test_a_run_that_has_begun_needs_the_file_no_more(tmp_path: Path) -> None:
    path, run_dir = written(tmp_path / "m", flat_of("mlp", seed=9)), tmp_path / "run"
    run_dir.mkdir()
    config = resolve(ServerConfig(init=path, run_dir=run_dir))
    assert config.init_sha256 == content_digest(path)
    with taken_up(build(config), run_dir):
        pass
    path.rename(tmp_path / "elsewhere")
    kept = run_dir / "init.safetensors"
    assert content_digest(kept) == config.init_sha256
    assert from_toml(run_dir / "run.toml").init == kept
    (run_dir / "journal.sqlite").unlink()  # as if it had been killed before it had written that down
    again = combine({"run_dir": run_dir})
    assert (again.init, again.init_sha256) == (kept, config.init_sha256)
    with taken_up(build(again), run_dir) as parts:
        assert torch.equal(parts.built.learner.state.model, flat_of("mlp", seed=9).params)
    kept.unlink()
    with taken_up(build(combine({"run_dir": run_dir})), run_dir) as parts:  # its round 0 has them
        assert torch.equal(parts.built.learner.state.model, flat_of("mlp", seed=9).params)


def test_a_run_that_is_to_begin_and_has_lost_them_says_which_they_are(tmp_path: Path) -> None:
    path, run_dir = written(tmp_path / "m", flat_of("mlp", seed=9)), tmp_path / "run"
    run_dir.mkdir()
    config = resolve(ServerConfig(init=path, run_dir=run_dir))
    with taken_up(build(config), run_dir):
        pass
    for name in ("init.safetensors", "journal.sqlite"):
        (run_dir / name).unlink()
    with (
        pytest.raises(UsageError, match=rf"is gone: give --init FILE, whose SHA-256 is {config.init_sha256}"),
        taken_up(build(combine({"run_dir": run_dir})), run_dir),
    ):
        pass
    with taken_up(build(combine({"run_dir": run_dir, "init": path})), run_dir):
        assert (run_dir / "init.safetensors").is_file()


def test_other_weights_are_another_run(tmp_path: Path) -> None:
    paths = [written(tmp_path / str(seed), flat_of("mlp", seed=seed)) for seed in (9, 10)]
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with taken_up(build(resolve(ServerConfig(init=paths[0], run_dir=run_dir))), run_dir):
        pass
    with pytest.raises(EdgeflockError, match=r"holds another run, different in init sha256 \("):
        combine({"run_dir": run_dir, "init": paths[1]})
    assert combine({"run_dir": run_dir, "init": paths[0]}).init == paths[0]
