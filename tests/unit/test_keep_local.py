"""What clients keep of a model as their own: trained beside the rest, in their state, in no bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import edgeflock
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.models.kit.registry import tuned
from edgeflock.common.payload.package import Kind
from edgeflock.common.tuning import optimizer
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.local import OWN, OWN_COUNTS, Local
from edgeflock.methods.kit.registry import load, names
from edgeflock.methods.kit.values import Plan, State
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import resolve
from support.processes import flock
from support.training import Normed, broadcast_of, half_of, local_of, samples

PARTS = ("conv1", "conv2", "fc", "head")  # of the model cnn
PLAN = Plan(lr=0.1, batch_size=4, epochs=2, momentum=0.9, weight_decay=0.05)


class Watching(Normed):
    """A model with a threshold per device: a buffer that its code moves in training."""

    threshold: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.threshold = torch.maximum(self.threshold, x.detach().abs().max())
        return super().forward(x)


def net_of(keep: str, module: type[nn.Module] = Normed, train: str = "") -> Net:
    torch.manual_seed(1)
    return tuned(adapt(module(), (4,), "mine:f"), Tuning(keep_local=keep, train=train))


def trained(bench: Workbench, state: State | None = None, plan: Plan = PLAN) -> Local:
    """Train one local round of FedAvg."""
    local = local_of(bench, samples(11, (4,)), plan, received=broadcast_of(bench), state=state)
    steps.run(half_of("fedavg", bench), local)
    return local


def test_what_is_kept_is_in_no_layout_and_begins_as_it_was_made() -> None:
    """Bytes of what is sent follow from the layouts; a normalisation is kept with its statistics (FedBN)."""
    flat = FlatModel(net_of("norm"))
    assert [spec.name for spec in flat.layout.tensors] == [
        "first.weight",
        "first.bias",
        "last.weight",
        "last.bias",
    ]
    assert flat.layouts.buffers.elements == flat.layouts.counters.elements == 0
    assert flat.own.tolist() == [1.0] * 5 + [0.0] * 5 + [0.0] * 5 + [1.0] * 5
    assert flat.own_counts.tolist() == [0]
    assert [spec.name for spec in flat.layouts.base.tensors][:2] == ["norm.weight", "norm.bias"]
    assert set(flat.lasting) | {spec.name for spec in flat.layout.tensors} == set(Normed().state_dict())


@pytest.mark.parametrize("keep", ["norm", "last", "first|norm.running_*|norm.num*"])
def test_a_round_moves_everything_as_if_nothing_were_kept(keep: str) -> None:
    """With SGD, momentum and decay: the shared part in the delta, the own part in the state."""
    whole, parted = Workbench(net_of("")), Workbench(net_of(keep))
    trained(whole)
    local = trained(parted)
    expected, found = whole.net.state_dict(), parted.net.state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, msg=name)
    assert torch.equal(local.new_state.vectors[OWN], parted.model.own)
    assert local.delta().numel() == parted.model.layout.elements


def test_so_it_is_with_adamw() -> None:
    kind = optimizer.parse("adamw")
    whole, parted = (Workbench(net_of(keep), optimizer=kind) for keep in ("", "last"))
    plan = Plan(lr=0.01, batch_size=4, epochs=2, weight_decay=0.05)
    trained(whole, plan=plan)
    trained(parted, plan=plan)
    for name, tensor in whole.net.state_dict().items():
        torch.testing.assert_close(parted.net.state_dict()[name], tensor, msg=name)


def test_the_next_round_goes_on_with_the_clients_own_part_and_another_clients_is_its_own() -> None:
    bench = Workbench(net_of("norm|last"))
    begun = bench.model.own.clone()
    first = trained(bench).new_state
    other = local_of(bench, samples(5, (4,)), PLAN, received=broadcast_of(bench))  # who has no state yet
    assert torch.equal(other.model.own, begun)
    assert other.model.own_counts.tolist() == [0]
    again = local_of(bench, samples(11, (4,)), PLAN, received=broadcast_of(bench), state=first)
    assert torch.equal(again.model.own, first.vectors[OWN])
    assert torch.equal(again.model.own_counts, first.vectors[OWN_COUNTS])
    assert not torch.equal(first.vectors[OWN], begun)


def test_a_threshold_per_device_is_a_buffer_that_stays() -> None:
    bench = Workbench(net_of("threshold|norm.running_*|norm.num*", Watching))
    local = trained(bench)
    assert "threshold" not in [spec.name for spec in bench.model.layouts.buffers.tensors]
    highest = max(float(batch.x.abs().max()) for batch in local.walk())
    assert local.new_state.vectors[OWN][0] == pytest.approx(highest)


class Patient(Watching):
    """Moves its threshold only from the third step on: two steps do not tell that it is none that stays."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        before = self.threshold
        made = super().forward(x)
        self.seen = self.seen + int(self.training)
        if int(self.seen) < 4:
            self.threshold = before
        return made


def test_a_buffer_that_moves_late_is_kept_as_it_is_left() -> None:
    bench = Workbench(net_of("threshold|seen", Patient))
    first = trained(bench).new_state
    assert first.vectors[OWN_COUNTS].tolist() == [6]
    again = local_of(bench, samples(11, (4,)), PLAN, received=broadcast_of(bench), state=first)
    assert float(again.model.own[0]) == float(first.vectors[OWN][0]) > 0


def test_a_second_pass_leaves_the_own_statistics_as_they_are() -> None:
    bench = Workbench(net_of("norm"))
    local = local_of(bench, samples(8, (4,)), PLAN, received=broadcast_of(bench))
    batch = next(iter(local.batches()))
    local.compute(batch)
    before = bench.model.own.clone(), bench.model.own_counts.clone()
    local.gradient_at(local.start, batch)
    assert torch.equal(bench.model.own, before[0])
    assert torch.equal(bench.model.own_counts, before[1])


@pytest.mark.parametrize("method", [name for name in names() if not load(name).central])
def test_every_method_works_over_the_part_that_is_shared(method: str) -> None:
    """Its vectors have that part's length; the own part is trained beside it, and is a candidate state."""
    bench = Workbench(net_of("last", train="last|first"))
    half = half_of(method, bench)
    local = local_of(
        bench, samples(11, (4,)), Plan(lr=0.05, batch_size=4, epochs=1), received=broadcast_of(bench)
    )
    begun = bench.model.own.clone()
    bundles = steps.run(half, local)
    assert bundles[Kind.DELTA].numel() == 4 * 5 + 5
    assert not torch.equal(local.new_state.vectors[OWN], begun)


def test_what_matches_nothing_and_a_run_without_clients_are_refused() -> None:
    with pytest.raises(
        BadValue, match=r"--keep-local is 'bn', .* \(bn matches none of first.weight, .*norm.num"
    ):
        net_of("bn")
    with pytest.raises(UsageError, match="no clients that could keep something: --keep-local is refused"):
        resolve(ServerConfig(method="centralized", keep_local="head"))


@pytest.mark.parametrize("codec", ["identity", "topk:0.2+zstd"])
def test_a_real_run_keeps_heads_on_the_devices_over_kills(tmp_path: Path, codec: str) -> None:
    """No global model is tested, clients test their own; nothing of the head is in a bundle."""
    flags = (
        "--model=cnn", "--model-arg=width=4", "--model-arg=hidden=16", "--clients=3", "--cohort=2",
        "--rounds=8", "--keep-local=head", "--method=scaffold", "--lr=0.2", f"--codec={codec}",
    )  # fmt: skip
    ends, told = [], []
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
        with flock(tmp_path / name) as made:
            ours, clients = made.server(*flags), made.clients("c0,c1", "c2")
            if name == "killed":
                ours.wait_for("round_committed", count=3)
                for program in (*clients, ours):
                    program.kill()
                ours, clients = made.server(), made.clients("c0,c1", "c2")
            assert [program.ended() for program in (ours, *clients)] == [0, 0, 0]
            ends.append(made.sha256())
            told.append(made.rows("SELECT round, model, loss FROM evaluations ORDER BY round, model"))
            if codec == "identity":
                shared = 4 * (4 * 9 + 4 + 8 * 4 * 9 + 8 + 16 * 32 + 16)
                query = "SELECT DISTINCT bytes FROM bundle_bytes WHERE direction = 'up'"
                assert made.rows(query) == [(shared,)]
    assert ends[0] == ends[1]
    assert told[0] == told[1]
    assert {name for _, name, *_ in told[0]} == {"client_local"}


def test_the_model_that_comes_back_has_the_devices_own_part_and_the_adapters_in_its_weights(
    tmp_path: Path,
) -> None:
    flags = (
        "--model=cnn",
        "--clients=2",
        "--rounds=2",
        "--keep-local=head",
        "--adapter=lora:rank=2",
        "--lr=0.2",
    )
    with flock(tmp_path) as made:
        server = made.server(*flags)
        client = made.client("c0,c1", f"--save-model={tmp_path}/models/{{id}}")
        assert (client.ended(), server.ended()) == (0, 0)
        result = load_file(made.run_dir / "model.safetensors")
    saved = [load_file(tmp_path / "models" / name / "current" / "model.safetensors") for name in ("c0", "c1")]
    assert set(result) == set(saved[0]) == {f"{part}.{kind}" for part in PARTS for kind in ("weight", "bias")}
    for name, tensor in result.items():
        alike = [torch.equal(one[name], tensor) for one in saved]
        assert alike == ([False] * 2 if name.startswith("head") else [True] * 2), name
    assert not torch.equal(saved[0]["head.weight"], saved[1]["head.weight"])
    assert edgeflock.load(tmp_path / "models" / "c0")(torch.zeros(3, 1, 8, 8)).shape == (3,)
