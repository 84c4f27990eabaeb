"""The worked example of docs/add-a-method.md is a method that runs."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgeflock.common.errors import BadValue
from edgeflock.common.flat import FlatModel
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.base import Bundles, ClientHalf, Method, ServerHalf
from edgeflock.methods.kit.local import Local, LocalData
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan, Setting, State
from edgeflock.server.files.checkpoints import Checkpoints, ModelLayouts
from edgeflock.server.learning.fold import SpooledUpdate
from edgeflock.server.learning.learner import Learner
from edgeflock.server.learning.work import RoundWork
from support.training import bench_of, samples

DOCUMENT = Path(__file__).parents[2] / "docs" / "add-a-method.md"
SHAPE, SEED = (1, 4, 5), 3
DATA = (samples(20, SHAPE, seed=1), samples(30, SHAPE, seed=2))


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


class LocalEngine:
    """Server and two clients in one process: the real learner and step loop, files instead of a network."""

    def __init__(self, method: Method, options: Mapping[str, str], folder: Path) -> None:
        self.folder, self.bench = folder, bench_of("mlp", SHAPE, hidden="8")
        flat = FlatModel(bench_of("mlp", SHAPE, hidden="8").net)
        layouts = ModelLayouts(flat.layout, flat.buffers_layout, flat.counters_layout)
        params = parse(method.params, options)
        setting = Setting(flat.layout, classes=3, features=self.bench.net.features, clients=2, seed=SEED)
        plan = Plan(lr=0.1, batch_size=8)
        self.learner = Learner(
            method, params, setting, layouts, plan, lr_decay=1.0, codec="identity", codec_down="identity"
        )
        self.learner.begin(flat)
        self.client = method.client(params, setting)
        self.states = [State(), State()]
        self.checkpoints = Checkpoints(folder, layouts)
        self.learner.save(self.checkpoints, 0)

    def round(self, number: int) -> tuple[RoundWork, list[Bundles], dict[str, float]]:
        """Play one round; return its work, the clients' bundles and the server's metrics."""
        opened = self.learner.round(number, (0, 1), {0: 20, 1: 30})
        work = self.learner.open(opened, self.checkpoints.model_path(number - 1), self.folder)
        received = {
            k: flat.clone() for k, flat in self.learner.half.broadcast(self.learner.state, opened).items()
        }
        sent, updates = [], {}
        for index, data in enumerate(DATA):
            bundles, updates[index] = self._train(work, index, data, received)
            sent.append(bundles)
        assert self.learner.fold((0, 1), updates) == {}
        metrics = self.learner.step(opened)
        self.learner.save(self.checkpoints, number)
        return work, sent, metrics

    def _train(
        self, work: RoundWork, index: int, data: LocalData, received: Mapping[Kind, Tensor]
    ) -> tuple[Bundles, SpooledUpdate]:
        local = Local(
            self.bench,
            data,
            work.plan,
            seed=SEED,
            seat=index,
            round=work.round.number,
            received=received,
            state=self.states[index],
        )
        bundles = steps.run(self.client, local)
        assert tuple(bundles) == tuple(spec.kind for spec in work.uploads)
        self.states[index] = local.new_state  # every update counts here
        bundles = {kind: flat.clone() for kind, flat in bundles.items()}
        parts = {spec.kind: (bundles[spec.kind], spec.layout, IDENTITY) for spec in work.uploads}
        own = {"samples": float(len(data)), "steps": float(local.steps_done), "loss": local.mean_loss()}
        encoded = pack(parts, {**local.scalars, **own}, lambda kind: torch.Generator())
        path = self.folder / f"{index}.data"
        path.write_bytes(b"".join(map(bytes, encoded.pieces)))
        return bundles, SpooledUpdate(index, encoded.package, path, work.layouts)

    def vector(self, name: str) -> Tensor:
        return self.learner.state.vectors[name].clone()


def test_two_rounds_of_the_example_move_the_model_as_its_formula_says(
    example: Method, tmp_path: Path
) -> None:
    engine = LocalEngine(example, {"beta": "0.5", "ahead": "yes"}, tmp_path)
    momentum, model = torch.zeros_like(engine.vector("model")), engine.vector("model")
    for number in (1, 2):
        work, sent, metrics = engine.round(number)
        kinds = {section.kind for section in work.shared.package.sections}
        assert kinds == ({Kind.MODEL} if number == 1 else {Kind.MODEL, Kind.MOMENTUM})
        assert metrics["gap"] == number - 1
        momentum = 0.5 * momentum + 0.4 * sent[0][Kind.DELTA] + 0.6 * sent[1][Kind.DELTA]
        model = model + momentum
        torch.testing.assert_close(engine.vector("momentum"), momentum)
        torch.testing.assert_close(engine.vector("model"), model)
    assert float(momentum.norm()) > 0


def test_clients_that_start_ahead_train_from_there(example: Method, tmp_path: Path) -> None:
    """Round 1 has no momentum, so the two options differ from round 2 on."""
    models: dict[str, list[Tensor]] = {}
    for ahead in ("no", "yes"):
        engine = LocalEngine(example, {"beta": "0.5", "ahead": ahead}, tmp_path / ahead)
        models[ahead] = []
        for number in (1, 2):
            engine.round(number)
            models[ahead].append(engine.vector("model"))
    assert torch.equal(models["no"][0], models["yes"][0])
    assert not torch.equal(models["no"][1], models["yes"][1])


def test_the_example_with_beta_0_is_fedavg_bit_for_bit(example: Method, tmp_path: Path) -> None:
    engines = [
        LocalEngine(example, {"beta": "0", "ahead": "yes"}, tmp_path / "a"),
        LocalEngine(load("fedavg"), {}, tmp_path / "b"),
    ]
    for engine in engines:
        engine.round(1)
        engine.round(2)
    assert torch.equal(engines[0].vector("model"), engines[1].vector("model"))


def test_a_value_out_of_the_examples_range_is_refused(example: Method) -> None:
    with pytest.raises(BadValue, match=r"beta is '1', allowed is a number in \[0, 1\)"):
        parse(example.params, {"beta": "1"})


def test_the_document_names_every_hook() -> None:
    text = DOCUMENT.read_text("utf-8")
    hooks = [name for half in (ServerHalf, ClientHalf) for name in vars(half) if not name.startswith("_")]
    assert [name for name in hooks if not re.search(rf"`{name}\b", text)] == []
