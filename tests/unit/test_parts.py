"""What is trained of a model and what is frozen: the base, which no step changes and no bundle holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor, nn

from edgeflock.client.keeping.kept import Kept
from edgeflock.client.training import setup
from edgeflock.client.training.base import Base
from edgeflock.common.errors import BadValue, LayoutMismatch
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.models.kit.flops import training_flops
from edgeflock.common.models.kit.registry import tuned
from edgeflock.common.payload import tensorfile
from edgeflock.common.payload.package import Kind
from edgeflock.common.run import ModelDescription
from edgeflock.common.tuning import parts
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.common.wire.messages import run_from_wire, run_to_wire
from edgeflock.lab.cli import group
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.values import Plan
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.files.checkpoints import MODEL_VECTORS
from support.processes import flock
from support.tiny_run import describe
from support.training import Normed, half_of, local_of, samples


class Frozen(Normed):
    """A user's model whose first two layers are frozen, the normalisation with them."""

    def __init__(self) -> None:
        super().__init__()
        for part in (self.first, self.norm):
            part.requires_grad_(False)


def net_of(module: type[nn.Module], train: str = "", seed: int = 1) -> Net:
    torch.manual_seed(seed)
    return tuned(adapt(module(), (4,), "mine:factory"), Tuning(train=train))


def numbers(net: Net) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def test_a_pattern_names_parameters_or_the_part_that_they_lie_in() -> None:
    names = ["body.0.weight", "body.10.weight", "bn1.weight", "head.weight", "head.bias", "threshold"]
    found = {
        text: parts.matched(names, parts.patterns(text))
        for text in ("head", "bn*|head.*", "body.?", " threshold ")
    }
    assert found["head"] == ["head.weight", "head.bias"]
    assert found["bn*|head.*"] == ["bn1.weight", "head.weight", "head.bias"]
    assert found["body.?"] == ["body.0.weight"]
    assert found[" threshold "] == ["threshold"]


def test_a_pattern_that_matches_nothing_is_refused_with_what_there_is() -> None:
    words = r"--train is 'head\|lost', allowed is .* \(lost matches none of conv1.weight, .*head.bias\)"
    with pytest.raises(BadValue, match=words):
        parts.train(models.build("cnn", input_shape=(1, 8, 8), classes=3, seed=1), "head|lost")
    with pytest.raises(BadValue, match=r"\(x matches none of conv1.\*, .*fc.\*\)"):
        parts.train(models.build("resnet18", input_shape=(3, 32, 32), classes=3, seed=1), "x")


@pytest.mark.parametrize("net", [net_of(Frozen), net_of(Normed, "last")], ids=["by the model", "by --train"])
def test_a_round_changes_only_what_is_trained(net: Net) -> None:
    """The frozen normalisation works as in a test, so its statistics stay, too."""
    bench = Workbench(net)
    assert [spec.name for spec in bench.model.layout.tensors] == ["last.weight", "last.bias"]
    assert bench.model.layouts.buffers.elements == bench.model.layouts.counters.elements == 0
    before = numbers(net)
    local = local_of(bench, samples(10, (4,)), Plan(lr=0.1, batch_size=4, epochs=2))
    bundles = steps.run(half_of("fedavg", bench), local)
    assert bundles[Kind.DELTA].numel() == 5 * 3 + 3
    changed = {name for name, tensor in numbers(net).items() if not torch.equal(tensor, before[name])}
    assert changed == {"last.weight", "last.bias"}


def test_the_trained_part_moves_as_it_would_with_the_rest_beside_it() -> None:
    """One step on the whole model, in test mode of the norm, has the same gradient where it is trained."""
    net = net_of(Frozen)
    bench, data = Workbench(net), samples(6, (4,))
    torch.manual_seed(1)
    plain = Normed()
    plain.norm.eval()
    torch.autograd.backward(nn.functional.cross_entropy(plain(data.x), data.y))
    local = local_of(bench, data, Plan(lr=0.5, batch_size=6, epochs=1))
    steps.run(half_of("fedavg", bench), local)
    assert plain.last.weight.grad is not None
    expected = plain.last.weight - 0.5 * plain.last.weight.grad
    torch.testing.assert_close(local.params[:15].view(3, 5), expected)


def test_of_a_frozen_part_no_passes_back_are_counted() -> None:
    whole, frozen = (
        tuned(models.build("cnn", input_shape=(1, 8, 8), classes=3, seed=1), Tuning(train=train))
        for train in ("", "head")
    )
    (forward, backward), (same, less) = (training_flops(net, (1, 8, 8)) for net in (whole, frozen))
    assert same == forward
    assert less == 2 * 64 * 3 < backward / 10


def test_what_lasts_of_a_model_is_all_that_torch_would_save() -> None:
    flat = FlatModel(net_of(Frozen))
    trained = {spec.name for spec in flat.layout.tensors}
    assert trained | set(flat.lasting) == set(net_of(Frozen).state_dict())


def test_the_base_has_an_identity_by_its_numbers_and_its_layout() -> None:
    one, same, other = (FlatModel(net_of(Frozen, seed=seed)).base_digest for seed in (1, 1, 2))
    assert one == same != other
    assert FlatModel(net_of(Normed)).base_digest == b""


def test_what_is_frozen_is_told_of_a_run() -> None:
    flat = FlatModel(net_of(Frozen))
    run = replace(describe(flat.layouts, 2), tuning=Tuning(train="last"), base_digest=flat.base_digest)
    assert run_from_wire(run_to_wire(run)) == run


def test_a_device_that_has_made_another_base_takes_the_servers_and_nothing_else(tmp_path: Path) -> None:
    server, device = (FlatModel(net_of(Frozen, seed=seed)) for seed in (1, 2))
    base, folder = Base(device, server.base_digest), tmp_path / "clients" / "c0"
    assert not base.is_here
    with pytest.raises(LayoutMismatch, match="what is frozen of this client's model differs"):
        base.fill(device)
    assert not base.offer(device.base + 1, device)
    kept = Kept("c0", folder, "run1")
    assert kept.base(base.digest) is None
    kept.keep_base(base.digest, server.base)
    found = Kept("c1", tmp_path / "clients" / "c1", "run2").base(
        base.digest
    )  # by another client of the device
    assert found is not None
    assert base.offer(found, device)
    assert device.base_digest == server.base_digest
    file = next((tmp_path / "base").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"\1")  # a torn page
    assert kept.base(base.digest) is None


def test_a_device_with_another_frozen_layout_is_told_where_it_differs() -> None:
    flat, device = FlatModel(net_of(Frozen)), FlatModel(net_of(Normed, "last.weight"))
    model = ModelDescription("custom", (4,), 3)
    run = replace(describe(flat.layouts, 2), model=model, base_digest=flat.base_digest)
    with pytest.raises(LayoutMismatch, match="differ in custom: parameters"):
        setup.make(run, net_of(Normed, "last.weight"), device)


def whole_file(path: Path) -> Path:
    """Write weights for all of the model of the real run, as of a training before."""
    flat = FlatModel(models.build("cnn", input_shape=(1, 8, 8), classes=10, arguments=SMALL, seed=77))
    own = {"model": flat.params, "buffers": flat.buffers, "counters": flat.counters}
    tensorfile.write(path, [(flat.layouts.of(name), own[name]) for name in MODEL_VECTORS], {})
    return path


AMOUNT = re.compile(r"^    ([a-z ]+?)(?:, .*?)?  +([\d,]+) +[\d.]+ MB$", re.MULTILINE)
SMALL = {"width": "4", "hidden": "16"}


def test_a_real_run_moves_what_is_trained_and_fetches_the_rest_once(tmp_path: Path) -> None:
    """Both ends are killed on the way: a device has kept what it had fetched; the result holds everything."""
    init = whole_file(tmp_path / "init.safetensors")
    flags = ("--model=cnn", *(f"--model-arg={key}={value}" for key, value in SMALL.items()))
    server = (*flags, "--clients=2", "--rounds=8", f"--init={init}", "--train=head.*", "--codec=int8")
    ends = []
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
        with flock(tmp_path / name) as made:
            ours, clients = made.server(*server), made.clients("c0", "c1")
            if name == "killed":
                ours.wait_for("round_committed", count=3)
                for program in (*clients, ours):
                    program.kill()
                ours, clients = made.server(), made.clients("c0", "c1")
            assert [program.ended() for program in (ours, *clients)] == [0, 0, 0]
            ends.append(made.sha256())
            fetched = made.rows(
                "SELECT seat, count(*), sum(bytes) FROM bundle_bytes WHERE kind = 'base' GROUP BY seat"
            )
            base = 4 * (4 * 9 + 4 + 8 * 4 * 9 + 8 + 16 * 32 + 16)
            assert fetched == [(0, 1, base), (1, 1, base)]
            assert made.rows("SELECT DISTINCT kind FROM bundle_bytes WHERE direction = 'up'") == [("delta",)]
            result = tensorfile_of(made.run_dir / "model.safetensors")
    assert ends[0] == ends[1]
    begun = tensorfile_of(init)
    assert result.keys() == begun.keys()
    assert {name for name in begun if not torch.equal(begun[name], result[name])} == {
        "head.weight",
        "head.bias",
    }


def tensorfile_of(path: Path) -> dict[str, Tensor]:
    return load_file(path)


def test_the_lab_says_what_of_a_model_travels_and_what_stays() -> None:
    flags = "--shape 1x8x8 --train head --adapter lora:rank=2 --keep-local fc"
    told = CliRunner().invoke(group, ["models", "cnn", *flags.split()])
    assert told.exit_code == 0, told.output
    found = {words: int(number.replace(",", "")) for words, number in AMOUNT.findall(told.output)}
    whole = 16 * 9 + 16 + 32 * 16 * 9 + 32 + 64 * 128 + 64 + 64 * 10 + 10
    adapters = 2 * 9 + 16 * 2 + 2 * 16 * 9 + 32 * 2  # beside the convolutions: fc is trained whole
    assert found == {
        "trained together": 64 * 10 + 10 + adapters,
        "kept and trained by every client": 64 * 128 + 64,
        "frozen": whole - (64 * 10 + 10) - (64 * 128 + 64),
    }
    refused = CliRunner().invoke(group, ["models", "--train", "head"]).exception
    assert "are of one model: name it" in str(refused)
