"""Low-rank adapters: their numbers by hand, their merging, what is refused, and a real run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from edgeflock.common.errors import BadValue
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.models.kit.registry import tuned
from edgeflock.common.tuning import adapters
from edgeflock.common.tuning.tuning import Tuning
from support.processes import flock

SHAPE = (1, 8, 8)


class Small(nn.Module):
    """What is particular of MobileNets: a child named `features`, depthwise windows, dropout."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU6(inplace=True),
            nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, 12, 1),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(12, classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


class Attending(nn.Module):
    """A model whose attention takes the weights of its last layer without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1, 2)
        logits: Tensor = self.head(self.attention(x, x, x)[0].mean(1))
        return logits


def small(tuning: Tuning, seed: int = 3) -> Net:
    torch.manual_seed(1)
    return tuned(adapt(Small(3), SHAPE, "mine:small"), tuning, SHAPE, seed)


def trained(net: Net) -> list[str]:
    return [spec.name for spec in FlatModel(net).layout.tensors]


def part(net: Net, name: str) -> nn.Module:
    found: nn.Module = dict(net.named_modules())[name]
    return found


def of(net: Net, name: str) -> Tensor:
    return dict(net.named_parameters())[name]


def shaken(net: Net) -> None:
    """Give the adapters numbers as after a training."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in adapters.names(net):
            tensor = of(net, name)
            tensor.copy_(torch.randn(tensor.shape, generator=generator))


def test_of_a_linear_layer_it_is_the_product_of_two_thin_ones() -> None:
    """y = W x + b + (alpha / rank) B A x."""
    net = small(Tuning(adapter="lora:rank=2,alpha=6,target=classifier.1"))
    shaken(net)
    layer, x = part(net, "classifier.1"), torch.randn(4, 12)
    weight, bias = of(net, "classifier.1.weight"), of(net, "classifier.1.bias")
    a, b = of(net, "classifier.1.lora_a"), of(net, "classifier.1.lora_b")
    assert (a.shape, b.shape) == ((2, 12), (3, 2))
    torch.testing.assert_close(layer(x), x @ weight.T + bias + 3 * (x @ a.T) @ b.T)


def test_of_a_convolution_it_is_one_with_the_weight_w_plus_b_a() -> None:
    net = small(Tuning(adapter="lora:rank=2,target=features.0"))
    shaken(net)
    x, layer = torch.randn(2, *SHAPE), part(net, "features.0")
    a, b = of(net, "features.0.lora_a"), of(net, "features.0.lora_b")
    assert (a.shape, b.shape) == ((2, 1, 3, 3), (6, 2))
    whole = of(net, "features.0.weight") + torch.einsum("or,rihw->oihw", b, a)
    torch.testing.assert_close(layer(x), nn.functional.conv2d(x, whole, stride=2, padding=1))


def test_before_the_first_step_a_model_is_what_it_is_without() -> None:
    x, plain, adapted = torch.randn(3, *SHAPE), small(Tuning()), small(Tuning(adapter="lora:rank=3"))
    assert torch.equal(plain.eval()(x)[1], adapted.eval()(x)[1])


def test_beside_every_layer_that_can_have_one_and_is_not_trained_whole() -> None:
    """A depthwise window is as small as its adapter would be."""
    pair = ["lora_a", "lora_b"]
    ours = [f"features.{place}.{part}" for place in (0, 5) for part in pair]
    head = ["classifier.1.weight", "classifier.1.bias"]
    assert trained(small(Tuning(adapter="lora:rank=2"))) == [
        *ours,
        *(f"classifier.1.{part}" for part in pair),
    ]
    assert trained(small(Tuning(adapter="lora:rank=2", train="classifier"))) == [*ours, *head]
    assert trained(small(Tuning(adapter="lora:rank=2,target=features.0"))) == ours[:2]


def test_both_ends_draw_the_same_from_the_runs_seed() -> None:
    one, same, other = (FlatModel(small(Tuning(adapter="lora:rank=2"), seed)).params for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_merged_it_is_the_same_model_without_adapters() -> None:
    net, x = small(Tuning(adapter="lora:rank=2,alpha=3")), torch.randn(5, *SHAPE)
    shaken(net)
    before = net.eval()(x)[1]
    tensors = adapters.merged(net.state_dict(), adapters.parse("lora:rank=2,alpha=3"))
    plain = Small(3).eval()
    plain.load_state_dict(tensors)
    torch.testing.assert_close(plain(x), before, rtol=1e-4, atol=1e-5)
    adapters.merge(net, adapters.parse("lora:rank=2,alpha=3"))
    assert net.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(net(x)[1], before, rtol=1e-4, atol=1e-5)


def test_texts_are_read_as_they_are_written() -> None:
    for text, written in {
        "lora": "lora:rank=4,alpha=4",
        "lora:rank=8": "lora:rank=8,alpha=8",
        "lora:alpha=2,rank=1,target=a.*|b": "lora:rank=1,alpha=2,target=a.*|b",
    }.items():
        assert str(adapters.parse(text)) == written
        assert str(adapters.parse(written)) == written


@pytest.mark.parametrize(
    "text", ["ia3", "lora:rank=0", "lora:rank=x", "lora:alpha=-1", "lora:r=4", "lora:rank"]
)
def test_an_adapter_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=r"--adapter is .*, allowed is lora with rank=N >= 1"):
        adapters.parse(text)


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        (
            Tuning(adapter="lora:target=features.9"),
            r"features.9 matches none of features.0, features.5, classifier.1",
        ),
        (Tuning(adapter="lora:target=features.3"), "features.3 matches none of"),  # depthwise
        (
            Tuning(adapter="lora:target=classifier", train="classifier"),
            "no frozen layer that can have one is meant",
        ),
    ],
)
def test_a_target_that_means_no_layer_is_refused(tuning: Tuning, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        small(tuning)


def test_a_layer_that_is_never_called_is_refused() -> None:
    with pytest.raises(BadValue, match=r"a target without attention\.out_proj: the model uses its weights"):
        tuned(adapt(Attending(), (2, 3, 8), "mine:f"), Tuning(adapter="lora"), (2, 3, 8))


FACTORY = """
from torch import nn

def factory(shape, classes):
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, classes)
    )
"""


def test_a_real_run_moves_adapters_alone_and_ends_in_the_model_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From weights for 7 classes; killed on the way; the result is loaded as one of the plain model."""
    (tmp_path / "minimodel.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    factory = __import__("minimodel").factory
    save_file(factory(SHAPE, 7).state_dict(), tmp_path / "seven.safetensors")
    server = (
        "--model=minimodel:factory", "--clients=2", "--rounds=6", "--init=seven.safetensors", "--train=4",
        "--adapter=lora:rank=2", "--client-optimizer=adamw", "--lr=0.01", "--codec=fp16",
    )  # fmt: skip
    ends = []
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
        with flock(tmp_path / name) as made:
            flags = ("c0,c1", "--model=minimodel:factory")
            ours, client = made.server(*server), made.client(*flags)
            if name == "killed":
                ours.wait_for("round_committed", count=3)
                client.kill()
                ours.kill()
                ours, client = made.server(), made.client(*flags)
            assert [ours.ended(), client.ended()] == [0, 0]
            ends.append(made.sha256())
            sent = made.rows("SELECT DISTINCT kind, bytes FROM bundle_bytes WHERE direction = 'up'")
            assert [kind for kind, _ in sent] == ["delta"]
            assert 2 * (2 * 9 + 6 * 2 + 540 + 10) <= sent[0][1] < 4 * (2 * 9 + 6 * 2 + 540 + 10)
            result = load_file(made.run_dir / "model.safetensors")
    assert ends[0] == ends[1]
    plain = factory(SHAPE, 10)
    plain.load_state_dict(result)
    begun = load_file(tmp_path / "seven.safetensors")
    assert not torch.equal(result["0.weight"], begun["0.weight"])  # merged
    assert torch.equal(result["1.running_mean"], begun["1.running_mean"])
