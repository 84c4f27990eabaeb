"""Operations: counted as torch counts them, once for a model, and with what each method adds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from edgeflock.common.models.kit import flops
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.custom import adapt
from edgeflock.common.models.kit.flops import Operations, operations, parameter_count, training_flops
from edgeflock.methods.kit import registry
from edgeflock.methods.kit.base import Effort
from edgeflock.methods.kit.options import parse

IMAGE = (1, 28, 28)
ROUND = {"steps": 12, "samples": 600, "held": 600}  # FedTrip's: batches of 50


def effort(name: str = "mlp", **work: int) -> Effort:
    net = models.build(name, input_shape=IMAGE, classes=10, seed=1)
    forward, backward = training_flops(net, IMAGE)
    return Effort(parameter_count(net), net.features, forward, backward, **{**ROUND, **work})


@pytest.mark.parametrize("name", ["mlp", "lenet5", "cnn", "resnet18", "logistic", "svm"])
def test_passes_are_counted_as_torch_counts_them(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    net = models.build(name, input_shape=IMAGE, classes=10, seed=1).eval()
    with FlopCounterMode(display=False) as counter:
        _, logits = net(torch.zeros(1, *IMAGE))
        forward = counter.get_total_flops()
        net.loss(logits, torch.zeros(1, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
    assert training_flops(net, IMAGE) == (forward, counter.get_total_flops() - forward)


def test_counting_leaves_the_model_as_it_was() -> None:
    net = models.build("resnet18", input_shape=IMAGE, classes=10, seed=1).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state = torch.get_rng_state()
    training_flops(net, IMAGE)
    assert net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)


class Under(nn.Module):
    """A layer under a head of 16 numbers."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(16, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        made = self.layer(x)
        features = (made[0] if isinstance(made, tuple) else made).mean(1)
        return features, self.head(features)


def of_layer(layer: nn.Module, *shape: int) -> Operations:
    """Return what a layer takes for a sample of that shape."""
    net = adapt(Under(layer), shape, "mine:layer")
    found, head = operations(net, shape), 2 * 16 * 3
    return Operations(found.forward - head, found.backward - 2 * head, found.uncounted)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        (nn.LSTM(8, 16, batch_first=True), 2 * 10 * 4 * 16 * (8 + 16)),
        (nn.LSTM(8, 8, 2, bidirectional=True, batch_first=True), 2 * 2 * 10 * 4 * 8 * (8 + 8 + 16 + 8)),
        (nn.GRU(8, 16, batch_first=True), 2 * 10 * 3 * 16 * (8 + 16)),
        (nn.RNN(8, 16, batch_first=True), 2 * 10 * 16 * (8 + 16)),
        (nn.Linear(8, 16), 2 * 10 * 8 * 16),
    ],
)
def test_what_goes_over_a_sequence_multiplies_at_every_step(layer: nn.Module, forward: int) -> None:
    """By hand: a multiply-add for each weight, step and gate; back it is twice that, at most."""
    found = of_layer(layer, 10, 8)
    assert (found.forward, found.uncounted) == (forward, ())
    assert forward <= found.backward <= 2 * forward


def test_the_way_back_of_an_lstm_is_what_the_chain_rule_needs_as_that_of_a_gru() -> None:
    """Of 10 steps 9 hand a gradient to the one before; the input has one if it is trained itself."""
    lstm = of_layer(nn.LSTM(8, 16, batch_first=True), 10, 8)
    assert lstm.backward == 2 * 4 * 16 * (10 * (8 + 16) + 9 * 16)
    assert lstm.backward * 3 == of_layer(nn.GRU(8, 16, batch_first=True), 10, 8).backward * 4
    frozen = nn.LSTM(8, 16, batch_first=True)
    frozen.weight_ih_l0.requires_grad_(False)
    assert of_layer(frozen, 10, 8).backward == 2 * 4 * 16 * (10 * 16 + 9 * 16)
    two = of_layer(nn.LSTM(8, 16, 2, batch_first=True), 10, 8)
    assert two.backward == lstm.backward + 2 * 4 * 16 * (10 * (16 + 16) + 9 * 16 + 10 * 16)


def test_attention_takes_what_its_matrices_take_whatever_torch_makes_it_with() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    found = of_layer(layer, 10, 16)
    weights, scores = 10 * 16 * (3 * 16 + 16 + 32 + 32), 2 * 10 * 10 * 16
    assert (found.forward, found.uncounted) == (2 * (weights + scores), ())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert of_layer(layer, 10, 16).forward == found.forward


def test_looking_up_a_token_multiplies_nothing() -> None:
    net = Under(nn.Embedding(50, 16))
    _, logits = net(torch.zeros(1, 10, dtype=torch.long))
    assert logits.shape == (1, 3)
    with flops._FlopCounter() as counter:
        net(torch.zeros(1, 10, dtype=torch.long))
    assert (counter.total, counter.uncounted) == (2 * 16 * 3, {})


class Odd(nn.Module):
    """Multiplies in ways of which nobody has a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear(x)
        turned: Tensor = torch.fft.fft(made)
        apart: Tensor = torch.cdist(made, made).sum() + torch.linalg.vector_norm(made)
        return turned.abs() + apart


def test_what_is_not_counted_is_named() -> None:
    found = of_layer(Odd(), 10, 8)
    assert found.forward == 2 * 10 * 8 * 16
    assert {"_fft_r2c", "_cdist_forward"} <= set(found.uncounted)
    assert not any("norm" in name for name in found.uncounted)
    assert found.words.startswith("the operations of _fft_r2c, _cdist_forward")


def test_bilinear_layers_and_single_products_are_counted() -> None:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pairs, self.scale = nn.Bilinear(4, 4, 16), nn.Parameter(torch.ones(16))

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.pairs(x[..., :4], x[..., 4:])
            together: Tensor = made + (made[0] @ self.scale).mean()
            return together

    assert of_layer(Pairs(), 10, 8).forward == 2 * 10 * 16 * 4 * 4 + 2 * 10 * 16


def attached(name: str, work: Effort, **options: str) -> float:
    method = registry.load(name)
    return method.extra_flops(parse(method.params, options), work)


def gflops(rounds: int, name: str, work: Effort) -> float:
    """FedTrip's Table V: multiply-adds of one client's forward passes, and what the method attaches."""
    passes = attached(name, work.bare())
    return rounds * (work.samples * work.forward / 2 + attached(name, work) - passes / 2) / 1e9


def test_fedtrip_s_table_5_is_recomputed_exactly() -> None:
    """Section V-C, MLP on MNIST to 87 %: 49 rounds of FedAvg, 28 of FedTrip, 53 of FedProx."""
    work = effort()
    assert (work.parameters, work.forward // 2) == (79_510, 79_400)
    assert round(gflops(49, "fedavg", work), 3) == 2.334
    assert round(gflops(28, "fedtrip", work), 3) == 1.441
    assert round(gflops(25, "moon", work), 3) == 3.573
    assert attached("fedtrip", work) == 4 * 12 * 79_510
    assert attached("fedprox", work) == 2 * 12 * 79_510
    assert attached("feddyn", work) == 4 * 12 * 79_510
    assert attached("feddc", work) == (6 * 12 + 2) * 79_510
    assert attached("moon", work) == attached("moon", work.bare()) == 2 * 600 * work.forward
    assert attached("fedtrip", work.bare()) == 0
    assert (
        round(attached("moon", work) / 2 / attached("fedtrip", work)) == 25
    )  # the paper says 50, its formula 25


def test_what_a_round_computes_is_what_it_did_times_what_that_takes() -> None:
    work = Effort(parameters=100, features=7, forward=3, backward=5, steps=12, samples=600, held=50)
    assert (work.training(), work.vectors(2), work.forwards()) == (600 * 8, 2 * 12 * 100, 600 * 3)
    assert (work.passes(), work.walk(), work.walk(backward=True)) == (600 * 8, 50 * 3, 50 * 8)
    assert (work.first_batch(2), replace(work, steps=0).first_batch(2)) == (2 * 50 * 8, 0)


def test_what_is_turned_off_costs_nothing() -> None:
    work = effort()
    assert attached("fedtrip", work, mu="0") == attached("fedprox", work, mu="0") == 0
    assert attached("mofedsam", work, sam_rho="0") == attached("fedcm", work)
    assert attached("fedmrur", work, sam_rho="0", reg_gamma="0") == attached("fedcm", work)
    assert attached("domo", work, fusion="none") == 0


@pytest.mark.parametrize("name", registry.names())
def test_passes_and_vectors_are_all_that_a_method_adds(name: str) -> None:
    """So the journal can tell multiply-adds of passes from operations on vectors."""
    work = effort()
    still = work.still()
    assert still == replace(work, forward=0, backward=0)
    passes, vectors = attached(name, work.bare()), attached(name, still)
    assert attached(name, work) == pytest.approx(passes + vectors, rel=1e-12)


def test_a_second_gradient_costs_a_training() -> None:
    work = effort("lenet5")
    uphill = attached("mofedsam", work) - attached("fedcm", work)
    assert uphill == work.training() + 4 * work.steps * work.parameters
    assert attached("mime", work) > attached("mimelite", work) + work.training()


# With a method's defaults, by its equations: operations on vectors in each step and once in a round, in |w|;
# passes in forward passes over all samples, and in whole ones; and what it does with features, in operations.
ADDED = {
    "fedavg": (0, 0, 0, 0, 0),
    "fedadam": (0, 0, 0, 0, 0),
    "fedyogi": (0, 0, 0, 0, 0),
    "fedadagrad": (0, 0, 0, 0, 0),
    "centralized": (0, 0, 0, 0, 0),
    "domo": (0, 2, 0, 0, 0),
    "fastslowmo": (3, 0, 0, 0, 0),
    "fedadc": (2, 0, 0, 0, 0),
    "fedadm": (2, 0, 0, 2 / 12, 0),  # two passes on the first of 12 batches
    "fedcm": (3, 0, 0, 0, 0),
    "feddyn": (4, 0, 0, 0, 0),
    "fedexp": (0, 0, 0, 0, 0),
    "fedmom": (0, 0, 0, 0, 0),
    "fedmrur": (7, 0, 1, 1, 12 * 600 * 100),
    "fednag": (3, 0, 0, 0, 0),
    "fedntd": (0, 0, 1, 0, 0),
    "fedprox": (2, 0, 0, 0, 0),
    "fedtr": (2, 2, 1, 0, (4 + 1) * 600 * 100),
    "fedtrip": (4, 0, 0, 0, 0),
    "mime": (6, 0, 0, 2, 0),
    "mimelite": (3, 0, 0, 1, 0),
    "mofedsam": (7, 0, 0, 1, 0),
    "moon": (0, 0, 2, 0, 0),
    "pfedmo": (3, 0, 0, 0, 0),
    "scaffold": (2, 2, 0, 0, 0),
    "slowmo": (0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_a_method_adds_is_what_its_equations_ask_for(name: str) -> None:
    step, once, forward, whole, features = ADDED[name]
    work = effort()
    vectors = (12 * step + once) * work.parameters
    passes = 600 * (forward * work.forward + whole * (work.forward + work.backward))
    assert attached(name, work) == pytest.approx(vectors + passes + features, rel=1e-12)
    assert attached(name, effort(steps=0, samples=0, held=0)) == once * work.parameters
