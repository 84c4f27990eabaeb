"""The laws that every method obeys, whatever its mathematics; a method is held to them by having a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from edgeflock.common.errors import UsageError
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.registry import build
from edgeflock.common.payload.package import IDENTITY, Kind, Package
from edgeflock.common.verdict import Verdict
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.registry import load, names
from edgeflock.methods.kit.values import State
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import resolve
from support.contract import PLAN, SIZES, NormalisedNet, Trial, finite, plain_net, same, shards

METHODS = names()
NETS = [pytest.param(plain_net, id="plain"), pytest.param(NormalisedNet, id="BatchNorm")]
CODECS = ("identity", "fp16", "bf16", "int8", "topk:0.1", "identity+zstd", "int8+zstd", "topk:0.1+zstd")
SOME = ((0, 1), (1, 2), (0, 2), (0, 1, 2))  # partial participation with gaps of one and two rounds


def whole(method: str) -> bool:
    return load(method).full_participation


def cohorts(method: str) -> Sequence[tuple[int, ...]]:
    """Return cohorts of four rounds as the method allows them."""
    return [(0, 1, 2)] * 4 if whole(method) else SOME


pytestmark = pytest.mark.parametrize("method", METHODS)

# ------------------------------------------------------------------------- order, restarts, bits


def test_the_order_of_arrival_does_not_matter(method: str, tmp_path: Path) -> None:
    """Three rounds: those after the first move with all state that the first has made."""
    orders = ([(0, 1, 2)] * 3, [(2, 1, 0), (1, 2, 0), (2, 0, 1)])
    ends = set()
    for place, arrivals in enumerate(orders):
        trial = Trial(tmp_path / str(place), method)
        ends.add(tuple(trial.round(arrivals=order).digests for order in arrivals))
    assert len(ends) == 1


def test_a_restart_of_either_end_after_any_round_leaves_no_trace(method: str, tmp_path: Path) -> None:
    """Server state comes from the checkpoint, client state from the store; nothing else may be remembered."""
    calm, cut = Trial(tmp_path / "calm", method), Trial(tmp_path / "cut", method)
    for cohort in cohorts(method):
        assert calm.round(cohort).digests == cut.round(cohort).digests
        cut.restart_server()
        cut.restart_clients()
    assert all(same(calm.state_of(index), cut.state_of(index)) for index in range(3))
    torch.testing.assert_close(calm.model, cut.model, rtol=0, atol=0)


def test_a_round_that_a_crash_has_cut_off_is_the_same_round_again(method: str, tmp_path: Path) -> None:
    """Everybody has trained and delivered when both ends die before the commit; nobody's state has moved."""
    calm, cut = Trial(tmp_path / "calm", method), Trial(tmp_path / "cut", method)
    for trial in (calm, cut):
        trial.play((0, 1, 2), (0, 1, 2))
    digests, number = cut.digests, cut.number
    cut.round(uncounted=(0, 1, 2))
    cut.digests, cut.number = digests, number
    cut.restart_server()
    cut.restart_clients()
    assert calm.round().digests == cut.round().digests


# ------------------------------------------------------------------------------------- bytes


def content(packages: Sequence[Package]) -> Counter[tuple[Kind, int]]:
    """Return what packages hold: kinds and sizes."""
    return Counter((section.kind, section.size_bytes) for package in packages for section in package.sections)


@pytest.mark.parametrize("net", NETS)
def test_bytes_are_those_that_the_method_declares(
    method: str, tmp_path: Path, net: Callable[[], Net]
) -> None:
    """Down: `broadcast`, `personal_kinds`, and `optional` for those who lack it; up: `uploads`. Each with the
    size of its layout, and the model's buffers on top."""
    trial = Trial(tmp_path, method, net=net)
    half, layouts = trial.learner.half, trial.learner.layouts
    extra = Counter(
        {
            (kind, layout.size_bytes): 1
            for kind, layout in ((Kind.BUFFERS, layouts.buffers), (Kind.COUNTERS, layouts.counters))
            if layout.elements
        }
    )
    for number in (1, 2, 3):
        round = trial.learner.round(number, (0, 1, 2), dict(enumerate(SIZES)))
        wanted_up = Counter((kind, half.layout(kind).size_bytes) for kind in half.uploads(round))
        kinds = [*half.broadcast(trial.learner.state, round), *half.personal_kinds(round)]
        wanted_down = Counter((kind, half.layout(kind).size_bytes) for kind in kinds)
        optional = Counter(
            (kind, half.layout(kind).size_bytes) for kind in half.optional(trial.learner.state, round)
        )
        played = trial.round()
        for index in (0, 1, 2):
            package = played.updates[index].package
            assert content([package]) == wanted_up + extra
            assert content(played.down[index]) - wanted_down - extra in (Counter(), optional)
            assert not wanted_down + extra - content(played.down[index])
            assert all(section.codec == IDENTITY for section in package.sections)


@pytest.mark.parametrize("codec", ["identity", "topk:0.1+zstd"])
def test_a_round_takes_no_more_bytes_than_a_budget_expects(method: str, tmp_path: Path, codec: str) -> None:
    """So that a budget of bytes stops any method before it, not beyond it."""
    trial = Trial(tmp_path, method, net=NormalisedNet, codec=codec)
    for cohort in cohorts(method):
        following = trial.learner.round(trial.number + 1, cohort, dict(enumerate(SIZES)))
        expected = trial.learner.expected_bytes(following)
        played = trial.round(cohort)
        up = sum(update.package.size_bytes for update in played.updates.values())
        down = sum(package.size_bytes for packages in played.down.values() for package in packages)
        if trial.found.central:
            assert expected == 0
        else:  # what only some lack is expected of all, and of a codec its worst
            assert up + down <= expected < (2 if codec == "identity" else 4) * (up + down)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_runs_and_stays_finite(method: str, tmp_path: Path, codec: str) -> None:
    trial = Trial(tmp_path, method, codec=codec)
    start = trial.model
    for cohort in cohorts(method):
        assert not trial.round(cohort).rejected
    assert finite(trial)
    assert not torch.equal(trial.model, start)


MODELS = [
    ("linear", (1, 4, 5), {}),
    ("logistic", (1, 4, 5), {}),
    ("svm", (1, 4, 5), {}),
    ("mlp", (1, 4, 5), {"hidden": "[7,6]"}),
    ("lenet5", (1, 28, 28), {}),
    ("cnn", (1, 28, 28), {}),
    ("alexnet", (3, 32, 32), {}),
    ("resnet18", (3, 32, 32), {"norm": "group"}),
    ("resnet18", (3, 32, 32), {"norm": "batch"}),
    ("vgg16", (3, 32, 32), {}),
    ("firenet-jadon", (3, 64, 64), {}),
    ("firenet-dunnings", (3, 32, 32), {"hidden": "64"}),
    ("alexnet-fedtrip", (3, 32, 32), {}),
    ("cnn-lrn", (1, 28, 28), {}),
]


@pytest.mark.long
@pytest.mark.parametrize(("model", "shape", "arguments"), MODELS)
def test_every_model_trains_and_stays_finite(
    method: str, tmp_path: Path, model: str, shape: tuple[int, ...], arguments: dict[str, str]
) -> None:
    def net() -> Net:
        return build(model, input_shape=shape, classes=4, arguments=arguments, seed=1)

    trial = Trial(
        tmp_path,
        method,
        net=net,
        data=shards(5, 3, 4, shape=shape, classes=4),
        plan=replace(PLAN, lr=1e-3, steps=1, batch_size=3),
        shape=shape,
        classes=4,
    )
    start = trial.model
    for cohort in cohorts(method)[:2]:
        assert not trial.round(cohort).rejected
    assert finite(trial)
    assert not torch.equal(trial.model, start)


# ------------------------------------------------------------------------------- client state


def test_state_is_promoted_only_when_its_update_was_counted(method: str, tmp_path: Path) -> None:
    """Client 1 trains in round 2 and comes too late; after that it is as if it had not trained."""
    late, absent = Trial(tmp_path / "late", method), Trial(tmp_path / "absent", method)
    for trial in (late, absent):
        trial.play((0, 1, 2))
    before, others = late.state_of(1), late.state_of(0)
    late.round(uncounted=(1,))
    assert same(late.state_of(1), before)
    if others.vectors or others.scalars:
        assert not same(late.state_of(0), others)
    if not whole(method):
        absent.round((0, 2))
        assert late.round().digests == absent.round().digests


def test_lost_state_is_survivable(method: str, tmp_path: Path) -> None:
    """A client without its state is one that takes part for the first time; the run stays finite."""
    trial = Trial(tmp_path, method)
    trial.play(*cohorts(method)[:2])
    trial.forget(1)
    trial.restart_clients()
    assert not trial.state_of(1).vectors
    for cohort in cohorts(method)[2:]:
        assert not trial.round(cohort).rejected
    assert not trial.round().rejected
    assert finite(trial)


# -------------------------------------------------------------------------------- unusual data


def test_an_empty_shard_is_no_part_of_the_sum(method: str, tmp_path: Path) -> None:
    """As if that client were not in the cohort; its update holds nothing but its own emptiness."""
    present, absent = (Trial(tmp_path / name, method, data=shards(20, 0, 14)) for name in ("in", "out"))
    start = present.model
    for _ in range(3):
        played = present.round()
        assert not played.rejected
        assert played.updates[1].scalars == {"samples": 0, "steps": 0, "loss": 0}
        assert played.digests == absent.round((0, 2)).digests
    assert finite(present)
    assert not torch.equal(present.model, start)
    assert same(present.state_of(1), State())


def test_a_round_of_empty_shards_changes_nothing(method: str, tmp_path: Path) -> None:
    trial = Trial(tmp_path, method, data=shards(0, 0, 0))
    before = {name: vector.clone() for name, vector in trial.learner.state.vectors.items()}
    trial.play((0, 1, 2), (0, 1, 2))
    assert all(torch.equal(vector, before[name]) for name, vector in trial.learner.state.vectors.items())


@pytest.mark.parametrize("net", NETS)
def test_a_client_with_one_sample_takes_part(method: str, tmp_path: Path, net: Callable[[], Net]) -> None:
    """With BatchNorm it trains in eval mode: one sample has no variance."""
    trial = Trial(tmp_path, method, data=shards(13, 1, 7), net=net)
    for cohort in cohorts(method):
        played = trial.round(cohort)
        assert not played.rejected
        assert all(update.scalars["steps"] > 0 for update in played.updates.values())
    assert finite(trial)


def test_a_class_that_nobody_holds_does_no_harm(method: str, tmp_path: Path) -> None:
    data = [LocalData(shard.x, shard.y.clamp(max=1)) for shard in shards(*SIZES)]
    data[2].y.zero_()  # one client holds a single class
    trial = Trial(tmp_path, method, data=data)
    start = trial.model
    for cohort in cohorts(method):
        assert not trial.round(cohort).rejected
    assert finite(trial)
    assert not torch.equal(trial.model, start)


def test_batchnorm_statistics_are_averaged_with_the_models_weights(method: str, tmp_path: Path) -> None:
    """Means and variances get the weights of the round's models; the counter is the highest."""
    trial = Trial(tmp_path, method, net=NormalisedNet)
    state = trial.learner.state.vectors
    before = state["buffers"].clone()
    played = trial.round()
    sent = {index: update.tensor(Kind.BUFFERS) for index, update in played.updates.items()}
    weights = [trial.found.weight(trial.params, size) for size in SIZES]
    mean = sum(weight * sent[index] for index, weight in enumerate(weights)) / sum(weights)
    torch.testing.assert_close(state["buffers"], mean)
    assert not torch.equal(state["buffers"], before)
    assert int(state["counters"].max()) == max(int(u.scalars["steps"]) for u in played.updates.values())
    trial.play((0, 1, 2))
    assert finite(trial)


# ------------------------------------------------------------------------------------ trouble


def test_an_update_that_is_not_finite_is_left_out(method: str, tmp_path: Path) -> None:
    """The sum is that of the others, as if it had not come; its client's state stays."""
    spoiled, without = Trial(tmp_path / "spoiled", method), Trial(tmp_path / "without", method)
    for trial in (spoiled, without):
        trial.round()
    kept = spoiled.state_of(1)
    played = spoiled.round(spoiled=(1,))
    assert played.rejected == {1: Verdict.NON_FINITE}
    assert played.digests == without.round(uncounted=(1,)).digests
    assert same(spoiled.state_of(1), kept)
    assert finite(spoiled)
    assert not spoiled.round().rejected


def test_the_last_good_model_is_kept_when_no_update_is_finite(method: str, tmp_path: Path) -> None:
    trial = Trial(tmp_path, method)
    trial.round()
    before = trial.model
    assert trial.round(spoiled=(0, 1, 2)).rejected == dict.fromkeys((0, 1, 2), Verdict.NON_FINITE)
    torch.testing.assert_close(trial.model, before, rtol=0, atol=0)
    assert finite(trial)


def test_without_a_step_the_model_stays(method: str, tmp_path: Path) -> None:
    trial = Trial(tmp_path, method, plan=replace(PLAN, steps=0))
    before = trial.model
    for _ in range(2):
        played = trial.round()
        assert all(update.scalars["steps"] == 0 for update in played.updates.values())
    torch.testing.assert_close(trial.model, before, rtol=0, atol=0)
    assert all(same(trial.state_of(index), State()) for index in range(3))


# ------------------------------------------------------------------------------- participation


def test_who_may_be_left_out_is_settled_at_start_up(method: str) -> None:
    """A method that needs everybody refuses a smaller cohort with a sentence; the others take it."""
    config = ServerConfig(method=method, clients=4, cohort=2)
    if load(method).central or whole(method):
        with pytest.raises(UsageError, match=r"--cohort is 2.* 4"):
            resolve(config)
    else:
        assert resolve(config).cohort == 2
