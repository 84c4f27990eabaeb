"""Models on devices, by real processes: a client killed while its model comes, and personal models."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import edgeflock
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.models.kit.registry import build
from edgeflock.common.run import CUSTOM, ModelDescription
from edgeflock.common.saved import Recipe
from edgeflock.server.start.resolve import combine
from support.processes import flock, until
from support.proxy import Proxy

BIG = ("--model=mlp", "--model-arg=hidden=8192")  # 2.4 MB: more than two chunks


def test_a_client_killed_while_its_model_comes_goes_on_with_what_is_there(tmp_path: Path) -> None:
    shelf = tmp_path / "models"
    with flock(tmp_path) as made, Proxy(lambda: made.address) as proxy:
        proxy.rate = 2e6
        server = made.server("--clients=2", "--rounds=1", "--linger=60", *BIG)
        saving = (f"--save-model={shelf}", "--on-model=touch " + str(tmp_path / "told"))
        client = made.client("c0", f"--server={proxy.address}", *saving)
        other = made.client("c1")
        until(lambda: _size(shelf / ".arriving") >= 1 << 20 or None, lambda: "a first chunk of the model")
        client.signal(signal.SIGKILL)
        client.process.join()
        assert not (shelf / "current").exists()
        proxy.rate = float("inf")
        again = made.client("c0", f"--server={proxy.address}", *saving)
        assert (again.ended(), other.ended(), server.ended()) == (0, 0, 0)
        result = load_file(made.run_dir / "model.safetensors")
        size = sum(tensor.numel() * 4 for tensor in result.values())
        ((fetched,),) = made.rows("SELECT sum(value) FROM round_costs WHERE name = 'result_bytes'")
    saved = load_file(shelf / "current" / "model.safetensors")
    x = np.random.default_rng(0).random((20, 1, 8, 8), np.float32)
    assert torch.equal(edgeflock.load(made.run_dir).outputs(x), edgeflock.load(shelf).outputs(x))
    assert all(torch.equal(saved[name], tensor) for name, tensor in result.items())
    assert fetched < 2 * size  # not all came twice
    assert (tmp_path / "told").exists()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize(
    "flags", [("--method=pfedmo",), ("--method=fedtr", "--set=head=private")], ids=["pfedmo", "fedtr"]
)
def test_each_client_gets_its_own_model_which_does_there_as_the_journal_says(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    tests = {name: _own_data(tmp_path / f"{name}.npz", first) for name, first in (("c0", 0), ("c1", 5))}
    own = (f"--data={tmp_path}/{{id}}.npz", f"--save-model={tmp_path}/models/{{id}}")
    with flock(tmp_path) as made:
        server = made.server("--clients=2", "--rounds=3", "--model=mlp", *flags)
        client = made.client("c0,c1", *own)
        assert (client.ended(), server.ended()) == (0, 0)
        told = dict(made.rows(_LAST_SCORES))
    for name, (x, y) in tests.items():
        model = edgeflock.load(tmp_path / "models" / name)
        assert float((model(x) == torch.from_numpy(y)).double().mean()) == pytest.approx(told[name])
        assert model.about["client"] == name


def test_a_model_with_adapters_comes_back_whole_also_to_who_has_never_trained(tmp_path: Path) -> None:
    net = build("cnn", input_shape=(1, 8, 8), classes=10, seed=99)
    save_file(dict(net.state_dict()), tmp_path / "init.safetensors")
    tuned = (f"--init={tmp_path}/init.safetensors", "--adapter=lora:rank=2", "--train=head", "--lr=0.5")
    with flock(tmp_path) as made:
        server = made.server("--clients=2", "--cohort=1", "--rounds=1", "--model=cnn", *tuned)
        hosts = [made.client(name, f"--save-model={tmp_path}/models/{name}") for name in ("c0", "c1")]
        assert [program.ended() for program in (*hosts, server)] == [0, 0, 0]
        result = load_file(made.run_dir / "model.safetensors")
    for name in ("c0", "c1"):
        saved = load_file(tmp_path / "models" / name / "current" / "model.safetensors")
        assert saved.keys() == result.keys()
        assert all(torch.equal(saved[key], tensor) for key, tensor in result.items())
        edgeflock.load(tmp_path / "models" / name)


def test_a_model_in_the_field_is_tested_where_the_data_are_and_never_trained(tmp_path: Path) -> None:
    net = build("mlp", input_shape=(1, 8, 8), classes=10, arguments={"hidden": "32"}, seed=5)
    about = Recipe(ModelDescription("mlp", (1, 8, 8), 10, {"hidden": "32"})).metadata()
    tensors = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    save_file(tensors, tmp_path / "m.safetensors", metadata=about)
    tests = {name: _own_data(tmp_path / f"{name}.npz", first) for name, first in (("c0", 0), ("c1", 5))}
    with flock(tmp_path) as made:
        flags = (f"--evaluate-only={tmp_path}/m.safetensors", "--rounds=2", "--clients=2")
        server = made.server(*flags)
        client = made.client("c0,c1", f"--data={tmp_path}/{{id}}.npz")
        assert (client.ended(), server.ended()) == (0, 0)
        found = made.rows("SELECT round, value, samples FROM evaluations WHERE model = 'global' ORDER BY 1")
        each = dict(made.rows("SELECT client_id, value FROM client_scores JOIN seats USING (seat)"))
        up = made.rows("SELECT sum(bytes_up), sum(steps) FROM costs")
        result = load_file(made.run_dir / "model.safetensors")
    model = edgeflock.load(tmp_path / "m.safetensors")
    hits = {name: model(x) == torch.from_numpy(y) for name, (x, y) in tests.items()}
    assert each == {name: pytest.approx(float(mine.double().mean())) for name, mine in hits.items()}
    whole = torch.cat(list(hits.values()))
    assert found == [(round, pytest.approx(float(whole.double().mean())), len(whole)) for round in (0, 1)]
    assert up == [(0, 0)]
    assert all(torch.equal(result[name], tensor) for name, tensor in tensors.items())


def test_what_evaluate_only_cannot_mean_is_said(tmp_path: Path) -> None:
    net = build("mlp", input_shape=(1, 8, 8), classes=10, seed=5)
    tensors = dict(net.state_dict())
    own = Recipe(ModelDescription(CUSTOM, (1, 8, 8), 10), own="net:make").metadata()
    save_file(tensors, tmp_path / "own.safetensors", metadata=own)
    save_file(tensors, tmp_path / "m.safetensors")

    def said(name: str, **given: object) -> str:
        with pytest.raises(EdgeflockError) as caught:
            combine({"evaluate_only": tmp_path / name, **given})
        return str(caught.value)

    assert said("none.safetensors").endswith("none.safetensors' is not a file")
    assert "is of a model of your own: name it, --model net:make" in said("own.safetensors")
    assert "--method scaffold contradicts it" in said("m.safetensors", method="scaffold")
    assert "--eval-every 0 contradicts it" in said("m.safetensors", eval_every=0)


def test_who_wants_the_best_model_has_that_one_in_the_end(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        server = made.server("--clients=2", "--rounds=4", "--model=mlp", "--lr=2", "--keep-every=1")
        saving = (f"--save-model={tmp_path}/models", "--save-which=best", "--keep-models=1")
        programs = (made.client("c0", *saving), made.client("c1"), server)
        assert [program.ended() for program in programs] == [0, 0, 0]
        ((best, _),) = made.rows("SELECT round, value FROM evaluations ORDER BY value DESC, round LIMIT 1")
        wanted = load_file(made.run_dir / f"rounds/{best:06d}/model.safetensors")
    model = edgeflock.load(tmp_path / "models")
    assert (model.about["round"], model.about["which"]) == (str(best), "best")
    found = load_file(tmp_path / "models" / "current" / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert len(list((tmp_path / "models" / "versions").iterdir())) == 1


_LAST_SCORES = """
    SELECT client_id, value FROM client_scores JOIN seats USING (seat)
    WHERE model = 'client_local' AND round = (SELECT max(round) FROM client_scores)
"""


def _own_data(path: Path, first: int) -> tuple[Any, Any]:
    """Write samples of five digits, from one on; return those of the test."""
    whole = datasets.load("digits")
    data = whole.ready(whole.train)
    mine = np.flatnonzero((data.y >= first) & (data.y < first + 5))
    train, test = mine[:200], mine[200:400]
    np.savez(path, x=data.x[train], y=data.y[train], x_test=data.x[test], y_test=data.y[test])
    return data.x[test], data.y[test]
