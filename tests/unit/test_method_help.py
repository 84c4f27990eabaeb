"""A method's options as they are documented, asked for and refused; names, defaults and ranges as METHODS
section 8 has them, to the letter."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from edgeflock.common.errors import BadValue, UnknownName
from edgeflock.lab.reference.lists import methods as lab_methods
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.cli import build
from edgeflock.server.start.describe import describe_method
from edgeflock.server.start.resolve import training_defaults

METHODS = names()


class Option(NamedTuple):
    """One row of the table: the default, values at the edges that are taken, values beyond that are not."""

    default: Any
    taken: tuple[str, ...]
    refused: tuple[str, ...]


def at_least_0(default: float) -> Option:
    return Option(default, ("0", "1e9"), ("-1e-9", "nan", "inf"))


def above_0(default: float | None) -> Option:
    return Option(default, ("1e-9", "1e9"), ("0", "-1", "nan"))


def factor(default: float) -> Option:
    """A momentum: [0, 1)."""
    return Option(default, ("0", "0.999"), ("1", "-0.1"))


def share(default: float) -> Option:
    """[0, 1]."""
    return Option(default, ("0", "1"), ("1.01", "-0.01"))


def upper_share(default: float) -> Option:
    """(0, 1]."""
    return Option(default, ("1e-9", "1"), ("0", "1.01"))


def words(*allowed: str) -> Option:
    return Option(allowed[0], allowed, ("", "other", allowed[0].upper()))


NAG = {"gamma": factor(0.5)}
ADAPTIVE = {"eta": above_0(0.01), "beta1": factor(0.9), "tau": above_0(1e-3)}
CM = {"cm_alpha": upper_share(0.1), "eta_g": above_0(1)}
TABLE: dict[str, dict[str, Option]] = {
    "fedavg": {},
    "centralized": {},
    "fedprox": {"mu": at_least_0(0.1)},
    "fedtrip": {
        "mu": at_least_0(0.4),
        "mu_per": words("step", "epoch"),
        "xi_mode": words("inverse", "const"),
        "xi_value": share(1),
        "first": words("none", "initial"),
        "push_limit": at_least_0(1),
    },
    "fedtr": {
        "lam_r": at_least_0(1),
        "alpha_g": at_least_0(0.1),
        "drift": words("additive", "descent", "off"),
        "eta_g": above_0(0.001),
        "head": words("shared", "private"),
    },
    "fedadm": {
        "mu0": at_least_0(0.1),
        "alpha": at_least_0(0.01),
        "xi": at_least_0(0.1),
        "tau": Option(
            "adaptive", ("adaptive", "fixed:1", "fixed:20"), ("fixed", "fixed:0", "fixed:1.5", "5")
        ),
        "tau_max": Option(100, ("1", "1000"), ("0", "-1", "1.5")),
        "phi": above_0(0.025),
        "bound": words("printed", "corrected"),
        "restart": words("latest", "best"),
        "result": words("best", "latest"),
        "batches": words("own", "equal"),
    },
    "pfedmo": {
        "gamma": factor(0.5),
        "pi": share(1),
        "eq12": words("interp", "printed", "flipped"),
        "score_set": words("heldout", "test"),
        "score_batch": Option(64, ("0", "1", "1000"), ("-1", "0.5")),
        "public_fraction": Option(0.05, ("0.001", "0.999"), ("0", "1", "-0.1")),
    },
    "fedmrur": {
        **CM,
        "sam_rho": at_least_0(0.05),
        "reg_gamma": at_least_0(0.005),
        "reg_sigma": above_0(1e4),
        "reg_beta": above_0(1),
        "aggregate": words("normalised", "mean"),
    },
    "fedcm": CM,
    "mofedsam": {**CM, "sam_rho": at_least_0(0.1)},
    "scaffold": {"eta_g": above_0(1)},
    "moon": {"mu": at_least_0(1), "temperature": above_0(0.5)},
    "feddyn": {"alpha": above_0(0.1)},
    "feddc": {"alpha": above_0(0.1)},
    "fedntd": {"beta": at_least_0(1), "temperature": above_0(1)},
    "slowmo": {"slow_lr": above_0(1), "beta": factor(0.5)},
    "fedmom": {"eta": Option(None, ("none", "0.5"), ("0", "-1", "auto")), "beta": factor(0.9)},
    "fednag": NAG,
    "fastslowmo": {**NAG, "gamma_a": factor(0.5), "carry": words("y", "buffer")},
    "mime": {"b": factor(0.9)},
    "mimelite": {"b": factor(0.9)},
    "domo": {
        "mu_l": factor(0.5),
        "mu_s": factor(0.9),
        "slow_lr": above_0(1),
        "beta": Option(0.9, ("0", "0.999"), ("-0.1", "nan")),
        "fusion": words("pre", "intra", "none"),
    },
    "fedadc": {
        "beta_g": share(0.9),
        "beta_l": share(0.9),
        "slow_lr": above_0(1),
        "variant": words("heavy", "nesterov"),
    },
    "fedadam": {**ADAPTIVE, "beta2": factor(0.99)},
    "fedyogi": {**ADAPTIVE, "beta2": factor(0.99)},
    "fedadagrad": {**ADAPTIVE, "eta": above_0(0.1), "beta1": factor(0)},
    "fedexp": {"eps": above_0(1e-3), "eps_decay": upper_share(1), "result": words("last", "average")},
}
COMMON = {"weighting": words("table", "weighted", "uniform"), "clip": at_least_0(0)}
CLIPS = {"fedmrur": 10.0}
TRAINING: dict[str, dict[str, float]] = {
    "fedtrip": {"lr": 0.01, "momentum": 0.9, "batch_size": 50, "epochs": 1},
    "fedtr": {"lr": 0.05, "batch_size": 50, "epochs": 1},
    "fedadm": {"lr": 0.01, "batch_size": 100},
    **{name: {"lr": 0.01, "batch_size": 64} for name in ("pfedmo", "fednag", "fastslowmo")},
    "fedmrur": {"lr": 0.1, "lr_decay": 0.998, "weight_decay": 5e-4, "batch_size": 50, "epochs": 3},
    **{name: {"lr": 0.1} for name in ("fedcm", "mofedsam")},
}
NAMELESS = ("eps_decay", "public_fraction")  # numbers that a paper states and gives no letter
RUN = {"lr": 0.05, "lr_decay": 1, "momentum": 0, "weight_decay": 0, "batch_size": 32, "epochs": 1}


def options_of(method: str) -> dict[str, Option]:
    clip = COMMON["clip"]._replace(default=CLIPS.get(method, 0.0))
    return {**TABLE[method], **COMMON, "clip": clip}


def test_there_are_these_methods() -> None:
    assert sorted(TABLE) == METHODS


@pytest.mark.parametrize("method", METHODS)
def test_options_have_these_names_defaults_and_ranges(method: str) -> None:
    kind = load(method).params
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    assert defaults == {name: option.default for name, option in options_of(method).items()}
    for name, option in options_of(method).items():
        for text in option.taken:
            parse(kind, {name: text})
        for text in option.refused:
            with pytest.raises(BadValue, match=f"^{name} is ") as refused:
                parse(kind, {name: text})
            words_of = kind.__dataclass_fields__[name].metadata["allowed"].words
            assert f"allowed is {words_of}" in str(refused.value)


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_option_is_refused_naming_those_that_exist(method: str) -> None:
    with pytest.raises(UnknownName) as refused:
        parse(load(method).params, {"nonesuch": "1"})
    assert all(name in str(refused.value) for name in options_of(method))


@pytest.mark.parametrize("method", METHODS)
def test_training_defaults_are_the_methods_own_else_the_runs(method: str) -> None:
    assert training_defaults(load(method)) == {**RUN, **TRAINING.get(method, {})}


@pytest.mark.parametrize("method", METHODS)
def test_both_commands_print_everything_of_a_method(method: str) -> None:
    """Meaning, the paper's symbol, default and range of every option; training, mean, participation."""
    served = CliRunner().invoke(build(), ["--method", method, "--help-method"], standalone_mode=False)
    listed = CliRunner().invoke(lab_methods, [method], standalone_mode=False)
    assert served.output == listed.output == describe_method(method) + "\n"
    lines = served.output.splitlines()
    for field in dataclasses.fields(load(method).params):
        at = lines.index(f"  {field.name}")
        symbol = field.metadata["symbol"]
        assert field.metadata["meaning"]
        assert lines[at + 1].strip().startswith(field.metadata["meaning"])
        assert not symbol or lines[at + 1].endswith(f"(the paper's {symbol})")
        default = "none" if field.default is None else field.default
        allowed = field.metadata["allowed"].words
        assert lines[at + 2].strip() == f"default {default}, allowed is {allowed}"
    for what in ("Training", "Mean over clients", "Participation", "Client models", "Moves"):
        assert sum(line.startswith(f"{what}: ") for line in lines) == 1
    for name, value in TRAINING.get(method, {}).items():
        assert f"--{name.replace('_', '-')} {value:g} *" in served.output


@pytest.mark.parametrize("method", METHODS)
def test_numbers_of_a_paper_have_their_symbol(method: str) -> None:
    """Choices between readings have none."""
    for field in dataclasses.fields(load(method).params):
        ours = field.name in (*COMMON, *NAMELESS)
        assert ours or not isinstance(field.default, float) or field.metadata["symbol"], field.name


def test_the_list_of_methods_has_a_line_for_each() -> None:
    lines = CliRunner().invoke(lab_methods, [], standalone_mode=False).output.splitlines()
    assert [line.split()[0] for line in lines] == METHODS
    assert all(len(line.split()) > 2 for line in lines)
