"""FedADM: both halves against NumPy (support/hand_adm.py), the bound, the budgets, anchors, the clock."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeflock.common.errors import BadValue
from edgeflock.common.sensors import Sensors
from edgeflock.methods.fedadm import control, dissimilarity
from edgeflock.methods.fedadm.control import Estimates, TauBudget, best_tau, granted
from edgeflock.methods.kit import steps
from edgeflock.methods.kit.options import parse
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.values import Plan
from support.contract import NormalisedNet
from support.federation import Federation
from support.hand_adm import Hand, bound_of
from support.interrupted import check_that_kills_leave_no_trace
from support.processes import flock
from support.training import bench_of, broadcast_of, half_of, local_of, samples

COHORTS = [(0, 1, 2), (0, 1, 2), (0, 2), (0, 2), (1,), (0, 1, 2), (1, 2), (0, 1), (0, 1, 2)]
PLAN = Plan(lr=0.1, batch_size=6)
C, B = 0.0130, 0.1316  # of METHODS 2.3 i
TABLE = [
    ((1, 1, 0.1), 24, 24),
    ((1, 1, 0.5), 13, 16),
    ((1, 5, 1), 5, 8),
    ((0.5, 2, 2), 8, 11),
    ((1, 1, 0), 100, 100),
]


def federation(folder: Path, plan: Plan = PLAN, /, **options: object) -> Federation:
    """Options of FedADM; `time_s` is the budget."""
    given = {name: str(value) for name, value in options.items()}
    limits = {"time": float(given.pop("time_s", "60"))}
    return Federation(folder, "fedadm", given, plan=plan, lr_decay=0.99, budgets=limits, clock="simulated")


def tau_of(run: Federation) -> int:
    """The steps of the round that comes next."""
    plan = run.learner.plan(run.learner.round(run.number + 1, (0, 1, 2), {}))
    assert plan.steps is not None
    return plan.steps


# ------------------------------------------------------------------------- server and clients, by hand


@pytest.mark.parametrize(
    ("options", "hand"),
    [
        ({}, {}),
        ({"bound": "corrected", "xi": 0.02, "alpha": 0.5}, {"bound": "corrected", "xi": 0.02, "alpha": 0.5}),
        ({"restart": "best", "mu0": 0.5}, {"restart": "best", "mu0": 0.5}),
        ({"weighting": "uniform", "phi": 0.01, "tau_max": 7}, {"uniform": True, "phi": 0.01, "tau_max": 7}),
        ({"tau": "fixed:4", "alpha": 1}, {"fixed": 4, "alpha": 1}),
        ({"batches": "equal"}, {"equal": True}),
        # The control of Wang et al. 2019, with their bound:
        ({"mu0": 0, "alpha": 0, "bound": "corrected"}, {"mu0": 0, "alpha": 0, "bound": "wang"}),
    ],
    ids=["defaults", "corrected", "restart", "uniform", "fixed", "equal", "wang"],
)
def test_rounds_equal_the_hand_computation(
    tmp_path: Path, options: dict[str, object], hand: dict[str, Any]
) -> None:
    """Unequal clients, partial participation, an update that is lost; tau moves as the hand's search says."""
    run = federation(tmp_path, **options)
    expected = Hand(run, **hand)
    taus = []
    for number, cohort in enumerate(COHORTS, start=1):
        lost = (2,) if number == 4 else ()
        expected.step(cohort, lost)
        metrics = run.round(*cohort, lost=lost)
        taus.append(metrics["tau"])
        state = run.learner.state
        np.testing.assert_allclose(run.model, expected.w, atol=1e-5)
        np.testing.assert_allclose(state.vectors["best"].double().numpy(), expected.best, atol=1e-5)
        assert expected.seen.keys() <= metrics.keys()
        for name, value in expected.seen.items():
            assert metrics[name] == pytest.approx(value, rel=2e-3, abs=1e-6), (number, name)
        assert metrics["H_k"] == 0.0
        assert ("H_before" in metrics) == (number > 1)
        assert tau_of(run) == expected.tau
        if not expected.fixed:
            assert state.scalars["used time"] == pytest.approx(expected.used)
    assert np.abs(expected.w - Hand(federation(tmp_path / "fresh")).w).max() > 0.05
    assert taus[:2] == ([1, 1] if not expected.fixed else [4, 4])
    assert len(set(taus)) > 1 or expected.fixed


@pytest.mark.parametrize("mu0", ["0", "0.1"])
def test_clients_of_the_same_data_and_batches_are_one_and_tau_goes_to_its_end(
    tmp_path: Path, mu0: str
) -> None:
    """Case 3 as in the ancestor: delta 0, h = 0, so tau is tau_max as soon as a search reaches it."""
    taus = {}
    for batches in ("equal", "own"):
        options = {"batches": batches, "mu0": mu0, "alpha": "0", "phi": "0.001"}
        where = {"sizes": (18, 18, 18), "plan": PLAN, "budgets": {"time": 60.0}, "clock": "simulated"}
        run = Federation(tmp_path / batches, "fedadm", options, **where)  # type: ignore[arg-type]
        run.data = [run.data[0]] * 3
        lines = [run.round() for _ in range(4)]
        taus[batches] = [line["tau"] for line in lines]
        assert all((line["delta"] == 0) == (batches == "equal") for line in lines)
        assert (abs(lines[-1]["B_g"] - 1) < 1e-6) == (batches == "equal")
    assert taus["equal"] == [1, 1, 10, 100]
    assert taus["own"][-1] < 100


def test_b_and_h_are_those_of_equations_10_and_11() -> None:
    """Losses 1, 2 and 3 of one sample and two of three: weights 1/n under the root, F the weighted mean."""
    kept: dict[str, float] = {}
    squares, whole = (1 + 4 + 9) / 3, (1 * 1 + 2 * 3 + 3 * 3) / 7
    first = dissimilarity.of_losses(kept, squares, whole)
    assert first == {"B_k": pytest.approx(math.sqrt(14 / 3) * 7 / 16), "H_k": 0.0}
    again = dissimilarity.of_losses(kept, 7.0, 2.0)
    left = 7 - 14 / 3 * 49 / 256 * 4
    assert again["H_before"] == pytest.approx(math.sqrt(left))
    assert again["B_k"] == kept["B_k"] == pytest.approx(math.sqrt(7) / 2)
    assert dissimilarity.of_losses(kept, 1.0, 2.0)["H_before"] == 0.0  # never of a negative number
    assert dissimilarity.of_losses({}, 0.0, 0.0) == {"B_k": 1.0, "H_k": 0.0}
    assert dissimilarity.of_gradients({"B_g": 1.0}, 9.0, 2.0) == {
        "B_g": 1.5,
        "H_g": pytest.approx(math.sqrt(5)),
    }


def test_the_anchor_stays_where_f_was_smallest_and_is_the_result(tmp_path: Path) -> None:
    """With a rate so high that F rises, w_best is not w; the closing task decides over the last aggregate."""
    run = federation(tmp_path, Plan(lr=3.0, batch_size=0), tau="fixed:3", mu0=0)
    first = run.model
    metrics = [run.round() for _ in range(4)][-1]
    half, state = run.learner.half, run.learner.state
    best = state.vectors["best"].double().numpy()
    assert metrics["F"] > metrics["F_best"]
    assert np.abs(best - run.model).max() > 0.1
    assert np.abs(best - first).max() > 0.1
    assert torch.equal(half.result(state), state.vectors["best"])
    latest = federation(tmp_path / "latest", tau="fixed:3", result="latest")
    latest.round()
    assert torch.equal(latest.learner.result(), latest.learner.state.model)
    assert latest.learner.half.closing(latest.learner.state) is None


def test_the_buffers_of_the_result_are_those_that_its_model_had(tmp_path: Path) -> None:
    """The anchor of a model with BatchNorm takes along the running means of its round."""
    limits, options = {"time": 60.0}, {"tau": "fixed:3", "mu0": "0"}
    plan = Plan(lr=3.0, batch_size=6)
    run = Federation(tmp_path, "fedadm", options, plan=plan, budgets=limits, net=NormalisedNet)
    half, state = run.learner.half, run.learner.state
    held, best, metrics = {0: (state.model.clone(), state.vectors["buffers"].clone())}, 0, {"F": 0.0}
    for number in range(1, 6):
        metrics = run.round()
        held[number] = (state.model.clone(), state.vectors["buffers"].clone())
        (best,) = (n for n, (model, _) in held.items() if torch.equal(model, half.result(state)))
        assert torch.equal(half.buffers(state, "buffers"), held[best][1])
    assert best not in (0, 5), "the result is neither the start's model nor the last"
    assert metrics["F"] > metrics["F_best"]


@pytest.mark.parametrize("answering", [(0, 1, 2), (1,), ()])
def test_the_closing_task_compares_the_last_aggregate_with_the_anchor(
    tmp_path: Path, answering: tuple[int, ...]
) -> None:
    """On one batch of each client: the whole set here, so F falls with every round."""
    run = federation(tmp_path, Plan(lr=0.1, batch_size=0))
    for _ in range(3):
        run.round()
    last, best = run.model, run.learner.state.vectors["best"].double().numpy().copy()
    states = [state.vectors.keys() for state in run.states]
    metrics = run.closing(*answering)
    result = run.learner.result().double().numpy()
    assert np.array_equal(result, last if answering else best)
    assert not np.array_equal(last, best)
    assert ("F" in metrics) == bool(answering)
    assert [state.vectors.keys() for state in run.states] == states


# ------------------------------------------------------------------------------------- identities


def test_alpha_0_and_a_fixed_tau_is_fedprox_in_round_1_bit_for_bit(tmp_path: Path) -> None:
    """Later the anchor is one round late."""
    options = {"alpha": "0", "mu0": "0.4", "tau": "fixed:5"}
    adm = Federation(tmp_path / "adm", "fedadm", options, plan=PLAN)
    prox = Federation(tmp_path / "prox", "fedprox", {"mu": "0.4"}, plan=Plan(lr=0.1, batch_size=6, steps=5))
    for run in (adm, prox):
        run.round()
    assert np.array_equal(adm.model, prox.model)
    for run in (adm, prox):
        run.round()
        run.round()
    assert not np.array_equal(adm.model, prox.model)


def test_the_server_s_operations_are_those_of_both_walks(tmp_path: Path) -> None:
    """Of each update: delta 2, gradient with its norm 4, how far it is from the mean gradient 4."""
    run = Federation(tmp_path, "fedadm", {"tau": "adaptive"}, plan=PLAN, budgets={"time": 60.0})
    run.round(0, 1)
    assert run.learner.own_operations() == {"server_flops": 2 * 10 * run.model.size}


def test_mu_0_and_alpha_0_is_fedavg_with_that_many_steps(tmp_path: Path) -> None:
    adm = Federation(tmp_path / "adm", "fedadm", {"alpha": "0", "mu0": "0", "tau": "fixed:5"}, plan=PLAN)
    plain = Federation(tmp_path / "plain", "fedavg", plan=Plan(lr=0.1, batch_size=6, steps=5))
    for _ in range(3):
        adm.round()
        plain.round()
    assert np.array_equal(adm.model, plain.model)


def estimates(rho: float, beta: float, delta: float, mu: float = 0.1, **changes: Any) -> Estimates:
    given = {"mus": [(1.0, mu), (3.0, mu)], "mu_first": mu, "eta": 0.01, "phi": 0.025, "xi": 1.0}
    return Estimates(rho=rho, beta=beta, delta=delta, **{**given, **changes})


def time_budget(limit: float = 60.0, c: float = C, b: float = B, used: float = 0.0) -> TauBudget:
    return TauBudget("time", limit, used, c, b)


@pytest.mark.parametrize(("of", "wang", "printed"), TABLE)
def test_the_search_finds_the_taus_of_the_table(
    of: tuple[float, float, float], wang: int, printed: int
) -> None:
    """METHODS 2.3 i, where T = R t / (c t + b): Wang et al.'s bound is the corrected one at mu = 0."""
    resource = [time_budget(60.0 + C + B)]
    assert best_tau(estimates(*of), resource, "printed", 100)[0] == printed
    assert best_tau(estimates(*of, mu=0.0), resource, "corrected", 100)[0] == wang


@pytest.mark.parametrize("mu_first", [0.1, 0.02, 0.5])
@pytest.mark.parametrize("bound", ["printed", "corrected"])
def test_the_bounds_equal_their_formulas_term_by_term(bound: str, mu_first: float) -> None:
    rho, beta, delta = 0.7, 2.0, 0.9
    of = estimates(rho, beta, delta, mus=[(2.0, 0.1), (1.0, 0.4)], mu_first=mu_first, xi=0.3)
    t = np.arange(1.0, 60.0)
    total = t * time_budget().rounds(t)
    for steps_, whole, found in zip(t, total, control.BOUNDS[bound](of, t, total), strict=True):
        by_hand = bound_of(
            bound, int(steps_), whole, rho=rho, beta=beta, delta=delta, mus=[0.1, 0.4], weights=[2.0, 1.0],
            mu_first=mu_first, eta=0.01, phi=0.025, xi=0.3,
        )  # fmt: skip
        assert found == pytest.approx(by_hand, rel=1e-9)


def test_the_corrected_bound_at_mu_0_is_that_of_wang_and_others() -> None:
    of = estimates(0.7, 2.0, 0.9, mu=0.0)
    t = np.arange(1.0, 60.0)
    total = t * time_budget().rounds(t)
    for steps_, whole, found in zip(t, total, control.corrected(of, t, total), strict=True):
        by_hand = bound_of(
            "wang", int(steps_), whole, rho=0.7, beta=2.0, delta=0.9, mus=[0.0], weights=[1.0],
            mu_first=0.0, eta=0.01, phi=0.025, xi=1.0,
        )  # fmt: skip
        assert found == pytest.approx(by_hand, rel=1e-9)


def test_one_step_does_not_lead_apart_and_neither_do_equal_clients() -> None:
    t = np.arange(1.0, 50.0)
    assert control.divergence(estimates(1, 3, 2), t)[0] == 0.0
    assert np.all(np.diff(control.divergence(estimates(1, 3, 2), t)) > 0)
    assert not control.divergence(estimates(1, 3, 0), t).any()


def test_steps_whose_power_overflows_are_skipped() -> None:
    """beta is a noisy quotient; with none left tau is 1."""
    wild = estimates(1, 1e308, 1)
    assert best_tau(wild, [time_budget()], "printed", 100)[0] == 1
    assert best_tau(estimates(1e-9, 1e5, 1e-12), [time_budget()], "printed", 100)[0] < 100
    assert best_tau(estimates(1, 1, 1), [time_budget(limit=0.1)], "printed", 100) == (1, math.inf)


def test_the_scarcest_resource_decides() -> None:
    """Bytes cost nothing per step: they ask for more of them."""
    of = estimates(1, 1, 0.5)
    alone, _ = best_tau(of, [time_budget()], "printed", 100)
    scarce = TauBudget("bytes", 1000.0, 0.0, 0.0, 100.0)
    more, _ = best_tau(of, [time_budget(), scarce], "printed", 100)
    ample = TauBudget("bytes", 1e12, 0.0, 0.0, 100.0)
    assert best_tau(of, [time_budget(), ample], "printed", 100)[0] == alone < more


# --------------------------------------------------------------------------------------- budgets


def test_a_round_that_does_not_fit_is_shortened_and_is_the_last_one() -> None:
    """R = 10, c = 0.5, b = 1: 12 steps and the evaluation take 6 + 1 + 1.5."""
    assert granted(12, [time_budget(10.0, 0.5, 1.0, used=1.5)]) == (12, False)
    assert granted(12, [time_budget(10.0, 0.5, 1.0, used=2.0)]) == (11, True)
    assert granted(12, [time_budget(10.0, 0.5, 1.0, used=9.9)]) == (1, True)
    assert granted(12, [time_budget(10.0, 0.5, 1.0, used=2.0), time_budget(8.0, 0.5, 1.0, used=2.0)]) == (
        7,
        True,
    )
    assert granted(12, [TauBudget("bytes", 10.0, 9.9, 0.0, 5.0)]) == (12, False)  # bytes are predicted
    assert granted(12, [time_budget(10.0, 0.0, 0.0)]) == (12, False)  # nothing is measured yet


def test_costs_are_split_into_steps_and_the_rest() -> None:
    kept: dict[str, float] = {}
    limits = {"time": 60.0, "cpu": 100.0, "bytes": 1e6, "energy": 40.0}
    costs = {"time": 3.0, "cpu": 8.0, "bytes": 500.0, "train_s": 2.0, "train_cpu_s": 6.0}
    costs |= {"energy": 20.0, "train_energy_j": 12.0}
    control.charge(kept, limits, costs, 4)
    assert control.resources(kept, limits) == [
        TauBudget("time", 60.0, 3.0, 0.5, 1.0),
        TauBudget("cpu", 100.0, 8.0, 1.5, 2.0),
        TauBudget("bytes", 1e6, 500.0, 0.0, 500.0),
        TauBudget("energy", 40.0, 20.0, 3.0, 8.0),
    ]
    assert control.exhausted(4, control.resources(kept, limits)).endswith(": energy 20 J of 40 J")
    control.charge(kept, limits, {**costs, "time": 4.0, "bytes": 700.0, "train_s": 0.0}, 4)
    assert control.resources(kept, limits)[0] == TauBudget("time", 60.0, 4.0, 0.5, 1.0)  # c as before
    assert control.resources(kept, limits)[2] == TauBudget("bytes", 1e6, 700.0, 0.0, 200.0)


def test_a_simulated_budget_is_kept_to(tmp_path: Path) -> None:
    """The last round is the first that does not fit with the evaluation, shortened to what is left."""
    run = federation(tmp_path, time_s=9.0)
    expected = Hand(run, budget=9.0)
    rounds, was_last = 0, False
    while not (plan := run.learner.plan(run.learner.round(run.number + 1, (0, 1, 2), {}))).stop:
        assert plan.steps == expected.tau
        assert plan.flags["last_round"] == float(expected.over)
        was_last = expected.over
        run.round()
        expected.step((0, 1, 2))
        if not was_last:
            rounds += 1
    assert was_last
    used = run.learner.state.scalars["used time"]
    assert used == pytest.approx(expected.used)
    last = run.learner.expected(run.learner.round(run.number, (0,), {0: 6}))["time"]
    assert 8 < used < 9 + last
    assert plan.stop == f"the budget leaves no room for another round: time {used:.6g} s of 9 s"
    assert rounds > 10


# ------------------------------------------------------------------------- what clients and server keep


def test_a_client_without_the_anchor_fetches_it_and_gets_the_server_s(tmp_path: Path) -> None:
    """Client 1 is away while the anchor moves; client 2 has lost its state."""
    run = federation(tmp_path, Plan(lr=0.1, batch_size=0))
    run.round()
    run.round(0, 2)
    run.round(0, 2)
    run.forget(2)
    flags = run.learner.plan(run.learner.round(4, (0, 1, 2), {})).flags
    client = half_of("fedadm", bench_of("mlp", (1, 4, 5), hidden="8"))
    assert [client.lacks(state, flags) for state in run.states] == [False, True, True]
    best = run.learner.state.vectors["best"].clone()
    run.round()
    for state in run.states:
        kept = {state.scalars[f"{name}_round"]: state.vectors[name] for name in ("anchor", "received")}
        assert torch.equal(kept[flags["best_round"]], best)


def test_lost_state_is_a_first_participation(tmp_path: Path) -> None:
    """mu_0 again, no rho_i and beta_i; the run goes on."""
    run = federation(tmp_path, alpha=1, xi=0)
    for _ in range(3):
        run.round()
    assert run.states[1].scalars["mu"] != 0.1
    run.forget(1)
    run.round()
    assert run.states[1].scalars["mu"] == 0.1
    assert {0.1} == {run.states[1].scalars["mu"]}
    assert run.states[0].scalars["mu"] > 0.1


def test_an_update_that_was_not_counted_leaves_the_client_as_it_was(tmp_path: Path) -> None:
    run = federation(tmp_path)
    run.round()
    before = dict(run.states[1].scalars)
    last = run.states[1].vectors["last"].clone()
    run.round(lost=(1,))
    assert run.states[1].scalars == before
    assert torch.equal(run.states[1].vectors["last"], last)


def test_a_batch_serves_three_times_while_tau_is_1() -> None:
    bench, data = bench_of("mlp", (1, 4, 5), hidden="8"), samples(30, (1, 4, 5))
    half, sent, state, seen = half_of("fedadm", bench), broadcast_of(bench), None, []
    for number, tau in enumerate([1, 1, 1, 1, 2, 1, 1, 1], start=1):
        plan = Plan(lr=0.01, batch_size=6, steps=tau)
        work = local_of(bench, data, plan, round=number, received=sent, state=state)
        steps.run(half, work)
        state = work.new_state
        state.vectors = {name: vector.clone() for name, vector in state.vectors.items()}
        seen.append(tuple(state.scalars[f"batch_{name}"] for name in ("round", "step", "uses")))
    assert seen == [(1, 0, 1), (1, 0, 2), (1, 0, 3), (4, 0, 1), (5, 1, 1), (5, 1, 2), (5, 1, 3), (8, 0, 1)]


def test_a_server_that_comes_back_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    runs = [federation(tmp_path / name) for name in ("calm", "killed")]
    for number in range(8):
        for run in runs:
            run.round()
        if number in (0, 4):
            runs[1].restart()
    calm, killed = (run.learner.state for run in runs)
    assert calm.scalars == killed.scalars
    assert all(torch.equal(calm.vectors[name], killed.vectors[name]) for name in calm.vectors)


def test_rounds_without_a_step_move_nothing(tmp_path: Path) -> None:
    run = federation(tmp_path, Plan(lr=0.0, steps=0))
    before = run.model
    run.round()
    assert np.array_equal(run.model, before)


@pytest.mark.parametrize(
    ("option", "text", "allowed"),
    [
        ("tau", "fixed:0", "adaptive, or fixed:N with a whole number N >= 1"),
        ("tau", "fixed:", "adaptive, or fixed:N"),
        ("tau", "5", "adaptive, or fixed:N"),
        ("tau", "fixed:2.5", "adaptive, or fixed:N"),
        ("tau_max", "0", "an integer >= 1"),
        ("phi", "0", "a number > 0"),
        ("mu0", "-1", "a number >= 0"),
        ("alpha", "nan", "a number >= 0"),
        ("xi", "-0.1", "a number >= 0"),
        ("bound", "wang", "printed or corrected"),
        ("batches", "same", "own or equal"),
    ],
)
def test_an_option_out_of_range_is_refused(option: str, text: str, allowed: str) -> None:
    with pytest.raises(BadValue, match=f"{option} is '{text}', allowed is {allowed}"):
        parse(load("fedadm").params, {option: text})


def test_the_extremes_of_the_options_do_what_they_say(tmp_path: Path) -> None:
    """A strong anchor holds; alpha lets the weights follow the distance; tau_max 1 keeps single steps."""
    moved = {}
    for name, options in (("free", {"mu0": 0}), ("held", {"mu0": 9})):
        run = federation(tmp_path / name, tau="fixed:6", alpha=0, **options)
        start = run.model
        run.round()
        moved[name] = float(np.linalg.norm(run.model - start))
    assert moved["held"] < 0.7 * moved["free"]
    follows = federation(tmp_path / "follows", tau="fixed:6", alpha=5, xi=0)
    shrinks = federation(tmp_path / "shrinks", tau="fixed:6", alpha=5, xi=9)
    for run in (follows, shrinks):
        run.round()
        metrics = run.round()
    assert follows.states[0].scalars["mu"] > 0.2
    assert metrics["mu_bar"] == 0.0
    single = federation(tmp_path / "single", tau_max=1)
    assert [single.round()["tau"] for _ in range(4)] == [1, 1, 1, 1]


# ------------------------------------------------------------------------------------- real processes

REAL = ("--method=fedadm", "--clock=simulated", "--clients=3", "--rounds=500", "--budget=time=4s")


def test_a_real_run_keeps_to_its_budget_over_kills(tmp_path: Path) -> None:
    """Simulated clock, partial participation: the same bits whatever happens, and a reason in the journal."""
    check_that_kills_leave_no_trace(tmp_path, *REAL, "--cohort=2")
    journal = flock(tmp_path / "calm")
    with journal as made:
        (ended,) = made.announced("run_ended")
        assert "the budget leaves no room for another round: time" in ended["reason"]
        rounds = made.announced("round_committed")
        (closing,) = made.announced("last_round_committed")
        assert rounds[-1]["budget"]["time"][0] <= 4.0 + rounds[-1]["tau"] * 0.05 + 0.4
        assert len(rounds) > 5
        assert {"B_k", "H_k", "mu_bar", "tau", "rho", "beta", "delta", "G"} <= rounds[-1].keys()
        assert closing["counted"] == 3
        assert closing["bytes_up"] == 0


SENSED = bool(Sensors().source)
JOULES = pytest.mark.skipif(SENSED, reason="this machine has a sensor: its joules cannot be foreseen")


@pytest.mark.parametrize("budget", ["bytes=400KB", "cpu=0.5s", pytest.param("energy=20J", marks=JOULES)])
def test_a_real_run_is_steered_by_other_budgets_too(tmp_path: Path, budget: str) -> None:
    """Time is measured; bytes are never exceeded, CPU time and energy by a round at most."""
    name, _, _ = budget.partition("=")
    with flock(tmp_path) as made:
        server = made.server(
            "--method=fedadm", "--clients=2", "--rounds=500", f"--budget={budget}", "--eval-every=0"
        )
        clients = [made.client("c0", "--watts=20"), made.client("c1", "--watts=20")]
        assert [program.ended() for program in (server, *clients)] == [0, 0, 0]
        (ended,) = made.announced("run_ended")
        ways = "leaves (no room for another|too little for a client's) round|is used up"
        assert re.search(ways, ended["reason"])
        assert name in ended["reason"]  # by FedADM's own word, or as any run ends by a budget
        lines = made.announced("round_committed") + made.announced("last_round_committed")
        used, limit = lines[-1]["budget"][name]
        assert set(lines[-1]["budget"]) == {"time", name}
        assert used <= limit if name == "bytes" else used < 2 * limit
        (moved,) = made.rows("SELECT sum(bytes_up) + sum(bytes_down) FROM costs")
        assert name != "bytes" or moved == (used,)
        assert json.dumps(ended)


def test_clients_of_one_process_take_turns_and_that_is_time_of_steps(tmp_path: Path) -> None:
    """On the real clock: the training of all three is c tau, as if one had done it; it was in b before."""
    with flock(tmp_path) as made:
        server = made.server("--method=fedavg", "--clients=3", "--rounds=2", "--steps=150", "--eval-every=0")
        client = made.client("c0,c1,c2")
        assert [server.ended(), client.ended()] == [0, 0]
        told = dict(made.rows("SELECT round, value FROM round_costs WHERE name = 'measured train_s'"))
        spent = dict(made.rows("SELECT round, sum(train_s) FROM costs GROUP BY round"))
    assert told.keys() == spent.keys() == {1, 2}
    for number, seconds in told.items():
        assert 0.6 * spent[number] < seconds <= spent[number]


def test_a_damaged_checkpoint_is_rebuilt_from_what_was_measured(tmp_path: Path) -> None:
    """With the real clock c and b are part of the state: the journal knows what the commit was told."""
    with flock(tmp_path) as made:
        server = made.server("--method=fedadm", "--clients=2", "--rounds=500", "--eval-every=0")
        clients = made.clients("c0,c1")
        server.wait_for("round_committed", count=5)
        server.kill()
        ((last,),) = made.rows("SELECT max(round) FROM rounds WHERE committed = 1")
        damaged = made.run_dir / "rounds" / f"{last:06d}" / "state.safetensors"
        content = bytearray(damaged.read_bytes())
        content[-1] ^= 1
        damaged.write_bytes(content)
        server = made.server("--rounds=30")
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0]
        assert server.events("checkpoint_rebuilt", round=last)
        assert made.rows("SELECT max(epoch) FROM rounds") == [(0,)]
