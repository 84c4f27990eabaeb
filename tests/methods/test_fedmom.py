"""FedMom (Huo et al. 2020): Nesterov's momentum on the server, over shares of all samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeflock.common.errors import BadValue
from edgeflock.methods.kit.options import parse, texts
from edgeflock.methods.kit.registry import load
from edgeflock.server.start.describe import describe_method
from support.federation import WIDTHS, Federation
from support.hand_mlp import local_round
from support.interrupted import check_that_kills_leave_no_trace

COHORTS = [(0, 1, 2), (0, 2), (1,), (0, 1), (0, 1, 2)]


@pytest.mark.parametrize("eta", ["none", "0.8"])
@pytest.mark.parametrize("weighting", ["table", "uniform"])
def test_rounds_equal_the_hand_computation(tmp_path: Path, eta: str, weighting: str) -> None:
    """n is over all clients, whoever takes part, and does not follow the weighting; eta is N/S or given."""
    run = Federation(tmp_path, "fedmom", {"beta": "0.6", "eta": eta, "weighting": weighting})
    w = v = run.model
    n, clients = sum(run.sizes), len(run.sizes)
    for t, cohort in enumerate(COHORTS, start=1):
        step = clients / len(cohort) if eta == "none" else float(eta)
        ends = {k: w + local_round(w, WIDTHS, run.batches(k, t), lr=0.1) for k in cohort}
        after = w - step * np.sum([run.sizes[k] / n * (w - end) for k, end in ends.items()], axis=0)
        w, v = after + 0.6 * (after - v), after
        metrics = run.round(*cohort)
        assert metrics["eta"] == step
        np.testing.assert_allclose(run.model, w, atol=1e-5)


def test_an_update_that_was_not_counted_is_not_in_s(tmp_path: Path) -> None:
    run, other = Federation(tmp_path / "a", "fedmom"), Federation(tmp_path / "b", "fedmom")
    assert run.round(lost=(1,))["eta"] == 1.5
    other.round(0, 2)
    assert np.array_equal(run.model, other.model)


@pytest.mark.parametrize("eta", ["1", "none"])
def test_beta_0_with_full_participation_is_fedavg(tmp_path: Path, eta: str) -> None:
    """Also with a client that has no samples: it is neither in N nor in S."""
    sizes = (20, 0, 9)
    mom = Federation(tmp_path / "mom", "fedmom", {"beta": "0", "eta": eta}, sizes=sizes)
    plain = Federation(tmp_path / "plain", "fedavg", sizes=sizes)
    for _ in range(3):
        assert mom.round()["eta"] == 1
        plain.round()
    np.testing.assert_allclose(mom.model, plain.model, atol=1e-6)


def test_the_default_step_makes_up_for_who_is_absent(tmp_path: Path) -> None:
    """Equal shards, beta 0: with eta N/S any cohort's round is FedAvg's; with eta 1 it is too short."""
    sizes = (12, 12, 12)
    models = {}
    for name, method, options in (
        ("plain", "fedavg", {}),
        ("default", "fedmom", {"beta": "0"}),
        ("one", "fedmom", {"beta": "0", "eta": "1"}),
    ):
        run = Federation(tmp_path / name, method, options, sizes=sizes)
        start = run.model
        run.round(0, 2)
        models[name] = run.model - start
    np.testing.assert_allclose(models["default"], models["plain"], atol=1e-6)
    np.testing.assert_allclose(models["one"], models["plain"] * 2 / 3, atol=1e-6)


@pytest.mark.parametrize(("text", "value"), [("none", None), ("0.5", 0.5), ("2", 2.0)])
def test_an_option_that_may_be_none_comes_back_from_its_text(text: str, value: float | None) -> None:
    params = parse(load("fedmom").params, {"eta": text})
    assert params.eta == value  # type: ignore[attr-defined]
    assert parse(load("fedmom").params, texts(params)) == params
    assert texts(parse(load("fedmom").params, {}))["eta"] == "none"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *(
            ({"eta": text}, f"eta is '{text}', allowed is a number > 0 or none")
            for text in ("0", "-1", "None")
        ),
        ({"eta": "inf"}, "eta is 'inf', allowed is a number > 0 or none"),
        ({"beta": "1"}, r"beta is '1', allowed is a number in \[0, 1\)"),
        ({"beta": "none"}, r"beta is 'none', allowed is a number in \[0, 1\)"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadValue, match=sentence):
        parse(load("fedmom").params, options)


def test_the_help_says_that_none_is_allowed() -> None:
    assert "default none, allowed is a number > 0 or none" in describe_method("fedmom")


def test_a_real_run_keeps_v_over_kills(tmp_path: Path) -> None:
    """The run directory alone resumes it: `eta = none` has come back from run.toml."""
    check_that_kills_leave_no_trace(tmp_path, "--method=fedmom", "--clients=3", "--cohort=2", "--rounds=30")
