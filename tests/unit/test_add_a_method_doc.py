"""The worked example of docs/add-a-method.md is a method that runs."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgeflock.common.errors import BadValue
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.base import ClientHalf, Method, ServerHalf
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.federation import Federation

DOCUMENT = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.fixture
def example(tmp_path: Path) -> Method:
    """Return the method of the document's code block, loaded as a module."""
    text = DOCUMENT.read_text("utf-8")
    code = re.search(r"`common/edgeflock/methods/fedavgm.py`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    file = tmp_path / "fedavgm.py"
    file.write_text(code[1], "utf-8")
    spec = importlib.util.spec_from_file_location("edgeflock_example_fedavgm", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # dataclasses look their module up
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    method = module.METHOD
    assert isinstance(method, Method)
    return method


def played(method: Method, folder: Path, **options: str) -> Federation:
    """Return a run of two clients, one with 20 samples and one with 30, before its first round."""
    return Federation(folder, method, options, sizes=(20, 30), plan=Plan(lr=0.1, batch_size=8))


def vector(run: Federation, name: str) -> Tensor:
    return run.learner.state.vectors[name].clone()


def test_two_rounds_of_the_example_move_the_model_as_its_formula_says(
    example: Method, tmp_path: Path
) -> None:
    run = played(example, tmp_path, beta="0.5", ahead="yes")
    momentum, model = torch.zeros_like(vector(run, "model")), vector(run, "model")
    for number in (1, 2):
        metrics = run.round()
        kinds = {section.kind for section in run.work.shared.package.sections}
        assert kinds == ({Kind.MODEL} if number == 1 else {Kind.MODEL, Kind.MOMENTUM})
        assert metrics["gap"] == number - 1
        first, second = (run.updates[seat].tensor(Kind.DELTA) for seat in (0, 1))
        momentum = 0.5 * momentum + 0.4 * first + 0.6 * second
        model = model + momentum
        torch.testing.assert_close(vector(run, "momentum"), momentum)
        torch.testing.assert_close(vector(run, "model"), model)
    assert float(momentum.norm()) > 0


def test_clients_that_start_ahead_train_from_there(example: Method, tmp_path: Path) -> None:
    """Round 1 has no momentum, so the two options differ from round 2 on."""
    models: dict[str, list[Tensor]] = {}
    for ahead in ("no", "yes"):
        run = played(example, tmp_path / ahead, beta="0.5", ahead=ahead)
        models[ahead] = []
        for _ in (1, 2):
            run.round()
            models[ahead].append(vector(run, "model"))
    assert torch.equal(models["no"][0], models["yes"][0])
    assert not torch.equal(models["no"][1], models["yes"][1])


def test_the_example_with_beta_0_is_fedavg_bit_for_bit(example: Method, tmp_path: Path) -> None:
    runs = [played(example, tmp_path / "a", beta="0", ahead="yes"), played(load("fedavg"), tmp_path / "b")]
    for run in runs:
        run.round()
        run.round()
    assert torch.equal(*(vector(run, "model") for run in runs))


def test_a_value_out_of_the_examples_range_is_refused(example: Method) -> None:
    with pytest.raises(BadValue, match=r"beta is '1', allowed is a number in \[0, 1\)"):
        parse(example.params, {"beta": "1"})


def test_the_document_names_every_hook() -> None:
    text = DOCUMENT.read_text("utf-8")
    hooks = [name for half in (ServerHalf, ClientHalf) for name in vars(half) if not name.startswith("_")]
    assert [name for name in hooks if not re.search(rf"`{name}\b", text)] == []
