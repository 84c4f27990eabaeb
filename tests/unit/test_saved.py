"""Saved models: a file says how to build its model, it predicts as that does, or is refused in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import edgeflock
from edgeflock.common.datasets.kit.base import Scaling
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.registry import build, build_custom
from edgeflock.common.run import CUSTOM, ModelDescription
from edgeflock.common.saved import Recipe
from edgeflock.common.tasks.next_token import NextToken

SHAPE = (1, 8, 8)
RECIPE = Recipe(ModelDescription("mlp", SHAPE, 10, {"hidden": "16"}), Scaling(16.0, (0.5,), (0.25,)))


@pytest.fixture
def net() -> Net:
    return build("mlp", input_shape=SHAPE, classes=10, arguments={"hidden": "16"}, seed=3).eval()


def saved(path: Path, net: Net, metadata: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.clone() for name, tensor in net.state_dict().items()}, path, metadata=dict(metadata)
    )
    return path


def test_a_recipe_comes_back_from_what_a_file_says() -> None:
    own = Recipe(ModelDescription(CUSTOM, (3,), 2, {"words": "a b=c"}, "regression"), own="net:make")
    for recipe in (RECIPE, own):
        assert Recipe.of(recipe.metadata()) == recipe


def test_it_predicts_as_the_model_that_was_saved(tmp_path: Path, net: Net) -> None:
    saved(tmp_path / "current" / "model.safetensors", net, {**RECIPE.metadata(), "round": "7"})
    model, x = edgeflock.load(tmp_path), torch.rand(600, *SHAPE)
    with torch.no_grad():
        logits = net(x)[1]
    assert torch.allclose(model.outputs(x), logits, atol=1e-6)
    assert torch.equal(model(x), logits.argmax(1))
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")  # torch warns of arrays that cannot be written
    assert torch.equal(model.outputs(mapped), model.outputs(x))
    assert len(model(x[:0])) == 0
    assert int(model(x[0].numpy())) == int(logits[0].argmax())  # one sample, one answer
    assert model.about["round"] == "7"


def test_bytes_are_scaled_as_in_the_training_and_shapes_fit_as_there(tmp_path: Path, net: Net) -> None:
    model = edgeflock.load(saved(tmp_path / "m.safetensors", net, RECIPE.metadata()))
    stored = np.random.default_rng(0).integers(0, 17, (5, *SHAPE)).astype(np.uint8)
    wanted = model.outputs(((stored / 16.0 - 0.5) / 0.25).astype(np.float32))
    for given in (stored, stored[:, 0], np.moveaxis(stored, 1, 3)):
        assert torch.allclose(model.outputs(given), wanted, atol=1e-5)


def test_the_parity_machine_answers_with_a_parity(tmp_path: Path) -> None:
    net = build("svm", input_shape=SHAPE, classes=10, seed=0)
    with torch.no_grad():
        net.head.weight.fill_(1.0)  # type: ignore[union-attr, operator]  # of any module
    recipe = Recipe(ModelDescription("svm", SHAPE, 10))
    model = edgeflock.load(saved(tmp_path / "m.safetensors", net, recipe.metadata()))
    assert model(torch.stack([torch.ones(SHAPE), -torch.ones(SHAPE)])).tolist() == [0, 1]


def test_the_answer_is_the_tasks(tmp_path: Path) -> None:
    net, x = build("linear", input_shape=(4,), classes=3, seed=1), torch.rand(6, 4)
    with torch.no_grad():
        made = net(x)[1]
    for task, answer in (
        ("classification", made.argmax(1)),
        ("regression", made),
        ("multilabel", made > 0),
    ):
        recipe = Recipe(ModelDescription("linear", (4,), 3, task=task))
        model = edgeflock.load(saved(tmp_path / f"{task}.safetensors", net, recipe.metadata()))
        assert torch.equal(model(x), answer)
        assert torch.equal(model.outputs(x), made)


def test_a_text_may_have_another_length_than_those_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text_mb.py").write_text(
        "from torch import nn\n"
        "def make(shape, classes):\n"
        "    return nn.Sequential(nn.Embedding(classes, 4), nn.Linear(4, classes))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = Recipe(ModelDescription(CUSTOM, (8,), 5, task="next-token"), own="text_mb:make")
    net = build_custom("text_mb:make", input_shape=(8,), classes=5, seed=0, task=NextToken(5))
    model = edgeflock.load(saved(tmp_path / "m.safetensors", net, recipe.metadata()), model="text_mb:make")
    text = np.array([[1, 2, 3, 4, 0, 1, 2, 3]])
    assert torch.equal(model(text[0, :3]), model(text)[0, :3])
    assert model(np.tile(text, 2)).shape == (1, 16)
    with pytest.raises(EdgeflockError, match="this model takes samples x 8"):
        model(np.zeros((2, 2, 8), np.int64))


def test_a_task_of_the_users_own_is_named_by_the_user_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "task_mb.py").write_text(
        "from edgeflock.common.tasks.regression import Regression\n"
        "class Doubled(Regression):\n"
        "    def answer(self, outputs):\n"
        "        return 2 * outputs\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    net, x = build("linear", input_shape=(4,), classes=1, seed=1), torch.rand(6, 4)
    recipe = Recipe(ModelDescription("linear", (4,), 1, task="task_mb:Doubled"))
    path = saved(tmp_path / "m.safetensors", net, recipe.metadata())
    with pytest.raises(EdgeflockError, match=r"name it, load\(\.\.\., task='task_mb:Doubled'\)"):
        edgeflock.load(path)
    with pytest.raises(EdgeflockError, match="or nothing: "):
        edgeflock.load(path, task="other:Doubled")
    model = edgeflock.load(path, task="task_mb:Doubled")
    assert torch.equal(model(x), 2 * model.outputs(x))


def test_a_model_of_the_users_own_is_named_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours_mb.py").write_text(
        "from torch import nn\n"
        "def make(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    net = build_custom("ours_mb:make", input_shape=SHAPE, classes=10, seed=1).eval()
    recipe = Recipe(ModelDescription(CUSTOM, SHAPE, 10), own="ours_mb:make")
    path = saved(tmp_path / "m.safetensors", net, recipe.metadata())
    sys.modules.pop("ours_mb")
    with pytest.raises(EdgeflockError, match=r"name it, load\(\.\.\., model='ours_mb:make'\)"):
        edgeflock.load(path)
    assert "ours_mb" not in sys.modules  # a file alone makes nothing be imported
    x = torch.rand(4, *SHAPE)
    with torch.no_grad():
        assert torch.equal(edgeflock.load(path, model="ours_mb:make").outputs(x), net(x)[1])


def test_what_cannot_be_loaded_is_said(tmp_path: Path, net: Net) -> None:
    def said(place: Path, model: str | None = None) -> str:
        with pytest.raises(EdgeflockError) as caught:
            edgeflock.load(place, model)
        return str(caught.value)

    whole = saved(tmp_path / "m.safetensors", net, RECIPE.metadata())
    assert said(tmp_path / "none") == f"there is no {tmp_path / 'none'}"
    assert "holds no model: allowed is the folder of fl-client --save-model" in said(tmp_path)
    assert "does not say which model it is of" in said(saved(tmp_path / "bare.safetensors", net, {}))
    (tmp_path / "torn.safetensors").write_bytes(whole.read_bytes()[:-9])
    assert "is no whole safetensors file" in said(tmp_path / "torn.safetensors")
    assert "none: " in said(whole, "net:make")
    assert said(5).startswith("place is 5, allowed is a folder")  # type: ignore[arg-type]  # what is typed
    (tmp_path / "m.int8").write_bytes(b"PK")
    assert said(tmp_path / "m.int8").endswith("is not a safetensors file, the only format that is read here")
    other = Recipe(ModelDescription("linear", SHAPE, 10))
    assert "the file and the model that it names differ in" in said(
        saved(tmp_path / "o.safetensors", net, other.metadata())
    )


def test_samples_of_another_shape_are_refused(tmp_path: Path, net: Net) -> None:
    model = edgeflock.load(saved(tmp_path / "m.safetensors", net, RECIPE.metadata()))
    with pytest.raises(EdgeflockError, match="x has the shape 4x7, this model takes samples x 1 x 8 x 8"):
        model(np.zeros((4, 7), np.float32))
    with pytest.raises(EdgeflockError, match="this model takes numbers"):
        model(np.full((2, 8, 8), "a"))
