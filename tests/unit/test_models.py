"""The models: sizes, shapes, initial values, arguments, users' own models."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue, UnknownName
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.custom import adapt, load_custom
from edgeflock.common.models.kit.flops import forward_flops, parameter_count
from edgeflock.common.models.kit.layers import SeededDropout, max_pool2, padded
from edgeflock.common.plugins import torchvision_gate
from edgeflock.common.plugins.loading import PluginError
from edgeflock.common.tuning.parts import require_trained

SIZES = [
    ("mlp", (1, 28, 28), 10, {}, 79_510),
    ("mlp", (561,), 6, {"hidden": "64,32"}, 38_246),
    ("lenet5", (1, 28, 28), 10, {}, 61_706),
    ("lenet5", (1, 28, 28), 47, {}, 64_851),
    ("lenet5", (1, 28, 28), 11, {}, 61_791),
    ("lenet5", (3, 32, 32), 10, {}, 62_006),
    ("lenet5", (561,), 6, {}, 44_086),
    ("lenet5", (1, 8, 8), 10, {}, 21_386),
    ("linear", (1, 28, 28), 10, {}, 7_850),
    ("logistic", (1, 28, 28), 10, {}, 7_850),
    ("svm", (1, 28, 28), 10, {}, 784),
    ("firenet", (3, 64, 64), 2, {}, 646_818),
    ("firenet-jadon", (3, 64, 64), 2, {}, 646_818),
    ("firenet-dunnings", (3, 224, 224), 2, {}, 68_342_914),
    ("alexnet-fedtrip", (3, 32, 32), 10, {}, 2_729_290),
    ("cnn-lrn", (1, 28, 28), 10, {}, 430_698),
    ("cnn-lrn", (3, 32, 32), 10, {}, 555_178),
    ("resnet18", (3, 32, 32), 10, {"stem": "large", "groups": "2"}, 11_181_642),
    ("resnet18", (3, 32, 32), 10, {}, 11_173_962),
    ("resnet18", (3, 64, 64), 10, {"norm": "batch"}, 11_181_642),
    ("cnn", (1, 8, 8), 10, {"width": "16"}, 13_706),
    ("cnn", (3, 33, 31), 10, {"dropout": "0.2"}, 120_490),
    ("alexnet", (3, 32, 32), 10, {}, 3_044_170),
    ("vgg16", (3, 32, 32), 10, {"norm": "none"}, 15_245_130),
]


def build(
    name: str, shape: tuple[int, ...] = (1, 28, 28), classes: int = 10, seed: int = 1, **arguments: str
) -> Net:
    return models.build(name, input_shape=shape, classes=classes, arguments=arguments, seed=seed)


@pytest.mark.parametrize(("name", "shape", "classes", "arguments", "size"), SIZES)
def test_a_model_has_its_published_size_and_returns_features_and_logits(
    name: str, shape: tuple[int, ...], classes: int, arguments: dict[str, str], size: int
) -> None:
    """The counts of METHODS.md section 4 and, where it names none, arithmetic."""
    net = models.build(name, input_shape=shape, classes=classes, arguments=arguments, seed=1).eval()
    features, logits = net(torch.rand(2, *shape))
    assert parameter_count(net) == size
    assert features.shape == (2, net.features)
    assert logits.shape == (2, 1 if name == "svm" else classes)
    head = net.get_submodule(net.head_name)
    assert isinstance(head, nn.Linear)
    assert torch.equal(head(features), logits)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "macs"),
    [
        ("mlp", (1, 28, 28), {}, 79_400),
        ("lenet5", (1, 28, 28), {}, 416_520),
        ("lenet5", (3, 32, 32), {}, 651_720),
        ("alexnet-fedtrip", (3, 32, 32), {}, 145_922_816),
        ("cnn-lrn", (1, 28, 28), {}, 6_048_768),
        ("resnet18", (3, 32, 32), {"stem": "large", "groups": "2"}, 37_016_576),
    ],
)
def test_the_counted_operations_are_twice_the_published_macs(
    name: str, shape: tuple[int, ...], arguments: dict[str, str], macs: int
) -> None:
    """Published or, for cnn-lrn, arithmetic: FedTrip's Table III says 145.93 million, PAPERS 5 says 37."""
    net = models.build(name, input_shape=shape, classes=10, arguments=arguments, seed=1)
    assert forward_flops(net, shape) == 2 * macs


def test_the_name_of_before_makes_the_same_firenet() -> None:
    old, new = build("firenet", (3, 32, 32)).state_dict(), build("firenet-jadon", (3, 32, 32)).state_dict()
    assert old.keys() == new.keys()
    assert all(torch.equal(old[key], new[key]) for key in old)


@pytest.mark.parametrize(
    ("size", "stride", "side"), [(5, 4, 224), (4, 1, 28), (3, 2, 56), (3, 2, 7), (2, 2, 7)]
)
def test_windows_begin_at_every_place_and_what_they_lack_is_put_to_the_end(
    size: int, stride: int, side: int
) -> None:
    x = torch.ones(1, 1, side, side + 1)
    wide = padded(x, size, stride)
    for length, before in zip(wide.shape[2:], x.shape[2:], strict=True):
        assert (length - size) // stride + 1 == -(-before // stride)
    assert wide.sum() == x.sum()
    first = [int((wide[0, 0] > 0).any(1 - axis).int().argmax()) for axis in (0, 1)]
    assert first == [(wide.shape[2] - side) // 2, (wide.shape[3] - side - 1) // 2]


def test_the_ancestor_of_fedadm_begins_as_its_code_does_and_normalises_over_nine_channels() -> None:
    net = build("cnn-lrn")
    values = dict(net.named_parameters())
    assert all((v == 0.1).all() for name, v in values.items() if name.endswith("bias"))
    assert values["fc.weight"].abs().max() <= 0.2
    assert values["fc.weight"].std().item() == pytest.approx(0.088, abs=0.001)
    x = torch.rand(1, 32, 2, 2)
    squares = torch.stack([x[:, max(0, c - 4) : c + 5].square().sum(1) for c in range(32)], 1)
    norm = net.get_submodule("norm")
    assert torch.allclose(norm(x), x / (1 + 0.001 / 9 * squares) ** 0.75)


@pytest.mark.parametrize("name", models.names())
def test_initial_values_depend_on_the_seed_alone_and_leave_the_global_generator(name: str) -> None:
    shape = (3, 32, 32)
    before = torch.default_generator.get_state()
    first = build(name, shape).state_dict()
    assert torch.equal(torch.default_generator.get_state(), before)
    torch.rand(3)
    second, other = build(name, shape).state_dict(), build(name, shape, seed=2).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert name == "svm" or any(not torch.equal(first[key], other[key]) for key in first)


def test_unknown_names_and_values_are_refused_with_a_sentence() -> None:
    with pytest.raises(UnknownName, match="unknown model 'lenet': did you mean 'lenet5'"):
        build("lenet")
    with pytest.raises(UnknownName, match="unknown model argument 'hiden': did you mean 'hidden'"):
        build("mlp", hiden="3")
    with pytest.raises(
        BadValue, match="model argument hidden is '64,x', allowed is one or more whole numbers"
    ):
        build("mlp", hidden="64,x")
    with pytest.raises(BadValue, match="model argument norm is 'layer', allowed is group or batch"):
        build("resnet18", (3, 32, 32), norm="layer")
    with pytest.raises(BadValue, match="model argument groups is 48, allowed is a divisor of 64"):
        build("resnet18", (3, 32, 32), groups="48")
    with pytest.raises(BadValue, match="model argument dropout is 'nan'"):
        build("cnn", dropout="nan")
    with pytest.raises(BadValue, match="classes is 0"):
        build("mlp", classes=0)


SMALLEST = {
    "alexnet": 16, "cnn": 8, "cnn-lrn": 4, "alexnet-fedtrip": 12, "firenet-dunnings": 8,
    "firenet-jadon": 22, "resnet18": 8, "vgg16": 32,
}  # fmt: skip


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_a_model_takes_images_down_to_the_size_that_it_names(name: str, side: int) -> None:
    build(name, (3, side, side))
    for short in ((3, side - 1, side), (3, side, side - 1)):
        with pytest.raises(BadValue, match=f"sides of at least {side}"):
            build(name, short)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cnn", (1, 7, 8)),
        ("cnn", (64,)),
        ("vgg16", (3, 28, 28)),
        ("firenet-jadon", (3, 16, 16)),
        ("firenet-dunnings", (3, 7, 9)),
        ("alexnet-fedtrip", (3, 11, 32)),
        ("cnn-lrn", (784,)),
        ("lenet5", (8, 8)),
    ],
)
def test_an_input_shape_that_does_not_fit_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadValue, match=f"input shape of {name} is '{'x'.join(map(str, shape))}', allowed is"):
        build(name, shape)


@pytest.mark.parametrize("text", ["64,32", "[64, 32]"])
def test_hidden_sizes_are_written_with_or_without_brackets(text: str) -> None:
    names = [name for name, _ in build("mlp", hidden=text).named_parameters()]
    assert names[:4] == ["hidden.0.weight", "hidden.0.bias", "hidden.1.weight", "hidden.1.bias"]


def test_the_svm_is_the_squared_hinge_with_parity_labels() -> None:
    """By hand: w = (1, -2), samples (1, 0) even, (0, 1) odd, (1, 1) even: margins 1, 2, -1; hinge 0, 0, 2;
    0.5 * (0 + 0 + 4) / 3 + 0.05 * 5."""
    net = build("svm", (2,))
    x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([4, 7, 0])
    assert net.loss(net(x)[1], y).item() == 0.5  # w_0 = 0: every margin is missed by 1
    with torch.no_grad():
        next(net.parameters()).copy_(torch.tensor([[1.0, -2.0]]))
    logits = net(x)[1]
    assert net.loss(logits, y).item() == pytest.approx(4 / 6 + 0.25)
    assert int(net.hits(logits, y)) == 2


def test_linear_uses_the_squared_error_and_logistic_the_cross_entropy() -> None:
    logits, y = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([0, 1])
    assert build("linear", (2,), 2).loss(logits, y).item() == pytest.approx((0.25 + 0.25) / 4)
    expected = (math.log(1 + math.exp(-1)) + math.log(2)) / 2
    assert build("logistic", (2,), 2).loss(logits, y).item() == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 1, 7, 9), (1, 2, 2, 3)])
def test_our_pooling_equals_torch_s_bit_for_bit_also_at_ties_and_odd_sizes(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-2, 3, shape, generator=generator).float()  # five values: ties everywhere
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = max_pool2(ours), F.max_pool2d(theirs, 2)
    weights = torch.randn(a.shape, generator=generator)
    (grad_a,) = torch.autograd.grad((a * weights).sum(), ours)
    (grad_b,) = torch.autograd.grad((b * weights).sum(), theirs)
    assert torch.equal(a, b)
    assert torch.equal(grad_a, grad_b)


def test_lenet5_s_order_of_layers_is_the_textbook_s_function() -> None:
    """ReLU after the pooling and conv3 as a product give the same logits and gradients."""
    net = build("lenet5")
    parts = dict(net.named_children())
    x, y = torch.rand(5, 1, 28, 28), torch.tensor([1, 2, 3, 4, 5])

    def textbook() -> Tensor:
        z = F.max_pool2d(F.relu(parts["conv1"](x)), 2)
        z = F.max_pool2d(F.relu(parts["conv2"](z)), 2)
        z = F.relu(parts["conv3"](z)).flatten(1)
        logits: Tensor = parts["fc2"](F.relu(parts["fc1"](z)))
        return logits

    parameters = list(net.parameters())
    ours = torch.autograd.grad(net.loss(net(x)[1], y), parameters)
    theirs = torch.autograd.grad(net.loss(textbook(), y), parameters)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)


def test_dropout_draws_from_its_own_generator() -> None:
    layer = SeededDropout(0.5)
    x = torch.ones(4, 50)
    with pytest.raises(RuntimeError, match="without a generator"):
        layer(x)
    layer.generator = generator = torch.Generator().manual_seed(1)
    first = layer(x)
    generator.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.skipif(not extras.installed("torchvision"), reason="torchvision is not installed")
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet18_is_torchvision_s_by_names_and_values(norm: str) -> None:
    ours = build("resnet18", (3, 64, 64), 10, norm=norm, stem="large").eval()
    layer = {"norm_layer": lambda width: nn.GroupNorm(32, width)} if norm == "group" else {}
    theirs = torchvision_gate.torchvision().models.resnet18(num_classes=10, **layer).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x)[1], theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not extras.installed("torchvision"), reason="torchvision is not installed")
@pytest.mark.parametrize(("norm", "factory"), [("batch", "vgg16_bn"), ("none", "vgg16")])
def test_vgg16_s_convolutions_are_torchvision_s(norm: str, factory: str) -> None:
    ours = build("vgg16", (3, 32, 32), norm=norm).get_submodule("body").eval()
    theirs = getattr(torchvision_gate.torchvision().models, factory)(init_weights=False).features.eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


class Own(nn.Module):
    """A user's model that returns logits alone."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: str = "8") -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), int(width)), nn.Dropout(0.25))
        self.last = nn.Linear(int(width), classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.relu(self.body(x)) * self.scale)
        return logits


class OwnPair(Own):
    """The same, but returning (features, logits)."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        features = torch.relu(self.body(x)) * self.scale
        return features, self.last(features)


@pytest.mark.parametrize("factory", [Own, OwnPair])
def test_a_user_s_model_keeps_its_names_and_gives_its_features(factory: type[Own]) -> None:
    module = factory((1, 4, 4), 3)
    before = list(module.state_dict())
    net = adapt(module, (1, 4, 4), "mine:factory")
    assert list(net.state_dict()) == before
    assert (net.features, net.head_names()) == (8, ("last.weight", "last.bias"))
    net.eval()
    features, logits = net(torch.rand(5, 1, 4, 4))
    assert torch.equal(module.last(features), logits)
    assert not module.training


def test_a_user_s_dropout_is_replaced_by_the_seeded_one() -> None:
    net = adapt(Own((4,), 3), (4,), "mine:factory")
    layers = [module for module in net.modules() if isinstance(module, (nn.Dropout, SeededDropout))]
    assert [(type(layer), layer.p) for layer in layers] == [(SeededDropout, 0.25)]


def test_a_user_s_model_is_found_by_reference_and_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ModuleType("mine")
    mine.factory = Own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", mine)
    built = [
        models.build_custom("mine:factory", input_shape=(4,), classes=3, arguments={"width": "5"}, seed=seed)
        for seed in (1, 1, 2)
    ]
    first, again, other = (net.state_dict()["last.weight"] for net in built)
    assert first.shape == (3, 5)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("factory", [lambda: nn.Linear(4, 3), lambda *, width=3: nn.Linear(4, width)])
def test_a_factory_that_takes_neither_shape_nor_classes_is_called_without(
    monkeypatch: pytest.MonkeyPatch, factory: Callable[..., nn.Module]
) -> None:
    mine = ModuleType("mine")
    mine.factory = factory  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", mine)
    net = models.build_custom("mine:factory", input_shape=(4,), classes=3, arguments={}, seed=0)
    assert [tuple(parameter.shape) for parameter in net.parameters()] == [(3, 4), (3,)]


@pytest.mark.parametrize(
    "reference", ["mine", ":factory", "no_such_module_here:factory", "math:no_such_name"]
)
def test_a_reference_that_leads_nowhere_is_refused(reference: str) -> None:
    with pytest.raises(BadValue, match=r"--model is .*, allowed is package.module:factory"):
        load_custom(reference)


def test_a_file_that_lies_where_the_command_is_typed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/add-a-method.md has it; an installed command does not look there by itself."""
    page = (Path(__file__).parents[2] / "docs" / "add-a-method.md").read_text("utf-8")
    code = page.partition("`mymodel.py`:\n\n```python\n")[2].partition("```")[0]
    (tmp_path / "model_of_the_user.py").write_text(code)
    (tmp_path / "broken_model_of_the_user.py").write_text("def factory(\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    reference, arguments = "model_of_the_user:factory", {"width": "48"}
    net = models.build_custom(reference, input_shape=(64,), classes=10, arguments=arguments, seed=0)
    assert net.features == 48
    with pytest.raises(PluginError, match=r"SyntaxError: .* \(broken_model_of_the_user.py:1\)"):
        load_custom("broken_model_of_the_user:factory")


def test_a_model_that_cannot_be_trained_here_is_refused() -> None:
    frozen = Own((4,), 3).requires_grad_(False)
    with pytest.raises(BadValue, match="this model freezes all of itself"):
        require_trained(adapt(frozen, (4,), "mine:factory"))
    with pytest.raises(BadValue, match="takes an input of shape"):
        adapt(Own((4,), 3), (5,), "mine:factory")
    with pytest.raises(BadValue, match=r"logits of an nn\.Linear"):
        adapt(nn.Conv1d(1, 1, 1), (1, 4), "mine:factory")
    with pytest.raises(BadValue, match="without AlphaDropout"):
        adapt(nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout()), (4,), "mine:factory")
