"""FedTrip's Tables III and VIII as commands: what models take, and what methods add."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from edgeflock.common.errors import BadValue, UnknownName, UsageError
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.flops import parameter_count, training_flops
from edgeflock.lab.reference import method_costs
from edgeflock.lab.reference.formula import Formula, symbol
from edgeflock.lab.reference.lists import methods
from edgeflock.lab.reference.lists import models as models_command
from edgeflock.lab.reference.models_list import MILLION, size
from edgeflock.lab.reference.samples_like import SamplesLike, found
from edgeflock.methods.kit.base import Effort
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.start.describe import exchanged

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def printed(command: Any, *words: str) -> list[str]:
    done = CliRunner().invoke(command, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output.splitlines()


@pytest.mark.parametrize(
    ("name", "shape", "mb", "parameters", "mflops"),
    [
        ("mlp", MNIST, 0.3, 0.08, 0.08),
        ("lenet5", MNIST, 0.24, 0.062, 0.42),
        ("alexnet-fedtrip", CIFAR, 10.42, 2.72, 145.93),
    ],
)
def test_fedtrip_s_table_3_comes_out(
    name: str, shape: tuple[int, ...], mb: float, parameters: float, mflops: float
) -> None:
    """Within .4 % or the paper's rounding: its 2,729,290 parameters are 10.41 MB and 2.73 million."""
    made = size(name, shape, 10)
    assert made.mib == pytest.approx(mb, rel=0.004, abs=0.005)
    assert made.parameters / MILLION == pytest.approx(parameters, rel=0.004, abs=0.0005)
    assert made.multiply_adds / MILLION == pytest.approx(mflops, rel=0.0001, abs=0.005)


def test_the_list_of_models_has_figures_for_the_samples_that_are_asked_for() -> None:
    lines = printed(models_command, "lenet5", "--dataset", "mnist")
    assert lines[0].split() == ["1x28x28,", "10", "classes", "parameters", "MB", "MFLOPs"]
    assert lines[1].split() == ["lenet5", "61,706", "0.235", "0.417"]
    large = printed(models_command, "resnet18", "--model-arg", "stem=large")
    assert large[1].split() == ["resnet18", "11,181,642", "42.655", "37.017"]
    refused = printed(models_command, "vgg16", "--shape", "1x28x28", "--classes", "47")
    assert refused[0].startswith("1x28x28, 47 classes")
    assert refused[1].split()[:4] == ["vgg16", "-", "-", "-"]
    assert refused[1].endswith("channels x height x width with sides of at least 32")


def test_every_model_is_listed_with_its_arguments() -> None:
    lines = printed(models_command, "--shape", "561")
    assert [line.split()[0] for line in lines[1:-2] if not line.startswith(" ")] == models.names()
    assert "    hidden=100  one or more whole numbers in [1, 65536], such as 100 or 64,32" in lines


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--shape", "3y"),
            "--shape is '3y', allowed is whole numbers with x between them, such as 3x32x32 or 561",
        ),
        (("--shape", "0x5"), "--shape is '0x5'"),
        (("--dataset", "nope"), "unknown data set 'nope'"),
        (("lenet",), "unknown model 'lenet': did you mean 'lenet5'"),
        (("--model-arg", "stem=large"), "--model-arg is an argument of one model: name it"),
        (("resnet18", "--model-arg", "stem"), "--model-arg is 'stem', allowed is KEY=VALUE"),
        (
            ("resnet18", "--model-arg", "norm=layer"),
            "model argument norm is 'layer', allowed is group or batch",
        ),
    ],
)
def test_what_cannot_be_listed_is_refused_with_a_sentence(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises((BadValue, UnknownName, UsageError)) as refused:
        printed(models_command, *words)
    assert sentence in str(refused.value)


def test_samples_are_those_of_a_data_set_whose_files_need_not_be_there() -> None:
    assert found("tissuemnist", None, None) == SamplesLike((1, 28, 28), 8)
    assert found("mnist:unit", None, 3) == SamplesLike(MNIST, 3)
    assert found("nope", "561", None) == SamplesLike((561,), 10)


# ------------------------------------------------------------------------------------------- formulas


def test_formulas_are_computed_with_like_numbers() -> None:
    k, w = symbol("K"), symbol("|w|")
    made = 2.0 * (k + 1) * w - w
    assert str(made) == "2 K |w| + |w|"
    assert made.at({"K": 12, "|w|": 100}) == 2500
    assert str(k * w * 3 / k) == "3 |w|"
    assert str(k / (w * 2)) == "0.5 K |w|^-1"
    assert str(k - k) == str(k * 0) == str(Formula()) == "0"
    assert str(2 + k + k) == "2 K + 2"
    with pytest.raises(ValueError, match="unpack"):
        _ = k / (k + w)


# -------------------------------------------------------------------------------------------- Table VIII


@pytest.mark.parametrize(
    ("method", "operations", "numbers"),
    [
        ("fedprox", "2 K |w|", "0"),
        ("feddyn", "4 K |w|", "0"),
        ("fedtrip", "4 K |w|", "0"),
        ("moon", "2 K M FP", "0"),
        ("scaffold", "2 K |w| + 2 |w|", "2 |w|"),
        ("mimelite", "3 K |w| + n FP + n BP", "2 |w|"),
        ("fedavg", "0", "0"),
        ("centralized", "0", "0"),
        ("fedtr", "2 K |w| + 2 |w| + 4 K M d + n FP + d n", "2 C d + 2 C"),
    ],
)
def test_fedtrip_s_table_8_is_what_the_code_counts(method: str, operations: str, numbers: str) -> None:
    """As printed, but: SCAFFOLD's option II has no n (FP + BP), MimeLite's own steps are 3 K |w| here."""
    row = method_costs.of(load(method))
    assert (str(row.operations), str(row.numbers)) == (operations, numbers)


@pytest.mark.parametrize("name", names())
def test_the_formulas_say_what_the_code_says_with_numbers(name: str) -> None:
    """Of operations and of what travels, with another model than the one that the formula was read from."""
    net = models.build("lenet5", input_shape=MNIST, classes=10, seed=1)
    forward, backward = training_flops(net, MNIST)
    work = {"steps": 7, "samples": 7 * 48, "held": 611}
    at = method_costs.values(net, MNIST, 10, steps=7, batch_size=48, samples=611)
    method, row = load(name), method_costs.of(load(name))
    effort = Effort(parameter_count(net), net.features, forward, backward, **work)
    assert row.operations.at(at) == pytest.approx(method.extra_flops(method.params(), effort), rel=1e-12)
    if not method.central:
        moved = sum(sum(bundles.values()) for bundles in exchanged(method, 2, net, 10))
        assert row.numbers.at(at) == moved - 2 * parameter_count(net)


def test_the_table_of_costs_has_symbols_and_figures_for_every_method() -> None:
    lines = printed(methods, "--costs", "--model", "mlp", "--steps", "12", "--samples", "600")
    assert lines[0].endswith("figures for mlp: K 12, M 50, n 600, |w| 79,510, FP 158,800, BP 160,800")
    rows = {line.split()[0]: line for line in lines[2 : 2 + len(names())]}
    assert list(rows) == names()
    assert rows["fedtrip"].split() == ["fedtrip", "4", "K", "|w|", "3.82", "MFLOP", "0", "-"]
    assert rows["scaffold"].endswith("2 |w|             636 kB")
    one = printed(methods, "fedtrip", "--costs")
    assert [line.split()[0] for line in one[2:3]] == ["fedtrip"]
