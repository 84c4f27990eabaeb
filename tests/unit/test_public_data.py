"""Data that the server itself trains and scores on: which they are, and what is refused at start-up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeflock.common.command.settings_file import identity_difference
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.errors import BadData, MissingData, UsageError
from edgeflock.common.partitions.kit.assign import assign, public_split
from edgeflock.common.partitions.kit.base import Indices
from edgeflock.common.payload.checksum import extend
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.config import ServerConfig
from edgeflock.server.core.conduct import ConductBook
from edgeflock.server.core.roster import Roster
from edgeflock.server.files.run_toml import from_toml, to_toml
from edgeflock.server.learning.tools import ServerTools
from edgeflock.server.start.build import build_learner, build_rules, describe_data
from edgeflock.server.start.describe import describe_method
from edgeflock.server.start.resolve import combine, resolve
from edgeflock.server.start.samples import load_test_set
from edgeflock.server.start.startup import build, taken_up

DIGITS = ServerConfig(method="pfedmo")


def changed(**changes: Any) -> ServerConfig:
    """Return a resolved run of pFedMo on digits with some changes."""
    return resolve(replace(DIGITS, **changes))


def write(path: Path, samples: int = 20, shape: tuple[int, ...] = (8, 8), highest: int = 9) -> Path:
    """Write an .npz of own data."""
    random = np.random.default_rng(samples)
    y = random.integers(0, highest + 1, samples)
    y[0] = highest
    np.savez(path, x=random.random((samples, *shape), dtype=np.float32), y=y)
    return path


def tools_of(config: ServerConfig) -> ServerTools:
    test = load_test_set(config)

    def no_net() -> Any:
        raise AssertionError("nobody has asked for a model")

    return ServerTools(config, no_net, LocalData(test.x, test.y), test.classes)


def rows(*parts: LocalData) -> set[bytes]:
    return {x.numpy().tobytes() for part in parts for x in part.x}


# ------------------------------------------------------------------------------------- which data


def test_a_share_of_the_data_set_is_the_server_s_and_no_client_s() -> None:
    config = resolve(DIGITS)
    digits = datasets.load("digits")
    _, held = public_split(len(digits.train), 0.05, config.seed)
    spec = describe_data(config)
    assert spec is not None
    assert (spec.public_fraction, spec.public_from_shards) == (0, 0.05)
    shards = assign(digits, partition="iid", seed=0, shards=4, public_from_shards=spec.public_from_shards)
    assert not set(held) & set(np.concatenate(shards))
    tools = tools_of(config)
    assert len(tools.public_data()) + len(tools.score_data()) == len(held)


def test_a_tenth_of_it_is_for_scores_and_not_trained_on() -> None:
    first, again = tools_of(resolve(DIGITS)), tools_of(resolve(DIGITS))
    trained, scored = first.public_data(), first.score_data()
    assert len(scored) == int(0.1 * (len(trained) + len(scored)) + 0.5)
    assert len(rows(trained, scored)) == len(rows(trained)) + len(rows(scored))
    assert torch.equal(scored.x, again.score_data().x)
    other = tools_of(changed(set={"public_fraction": "0.5"}))
    assert len(other.public_data()) > 9 * len(trained)


def test_a_file_of_public_data_leaves_the_clients_all_of_theirs(tmp_path: Path) -> None:
    config = changed(public_data=write(tmp_path / "p.npz"))
    spec = describe_data(config)
    assert spec is not None
    assert (spec.public_fraction, spec.public_from_shards) == (0, 0)
    tools = tools_of(config)
    assert (len(tools.public_data()), len(tools.score_data())) == (18, 2)
    assert tools.public_data().x.shape[1:] == (1, 8, 8)


def test_with_data_to_score_on_all_public_data_are_trained_on(tmp_path: Path) -> None:
    files = {name: write(tmp_path / f"{name}.npz", size) for name, size in (("public", 20), ("score", 7))}
    config = changed(public_data=files["public"], score_data=files["score"])
    tools = tools_of(config)
    assert (len(tools.public_data()), len(tools.score_data())) == (20, 7)


def test_the_test_data_are_scored_on_if_that_is_asked_for(tmp_path: Path) -> None:
    config = replace(DIGITS, set={"score_set": "test"}, public_data=write(tmp_path / "p.npz"))
    tools = tools_of(resolve(config))
    assert len(tools.public_data()) == 20
    assert torch.equal(tools.score_data().x, load_test_set(resolve(config)).x)


@pytest.mark.parametrize("flag", ["eval_data", "public_data", "score_data"])
def test_bytes_of_a_file_beside_the_data_set_become_what_its_own_do(tmp_path: Path, flag: str) -> None:
    digits = datasets.load("digits")
    np.savez(tmp_path / "own.npz", x=digits.test.x, y=digits.test.y)
    config = changed(**{"score_data": tmp_path / "own.npz", flag: tmp_path / "own.npz"})
    tools = tools_of(config)
    read: dict[str, Any] = {
        "eval_data": load_test_set(config),
        "public_data": tools.public_data(),
        "score_data": tools.score_data(),
    }
    assert torch.equal(read[flag].x, torch.from_numpy(digits.ready(digits.test).x))


def test_the_method_s_description_names_the_flag() -> None:
    assert "--public-data" in describe_method("pfedmo")
    assert "--public-data" not in describe_method("fedavg")


def assigned(config: ServerConfig) -> tuple[Indices, ...]:
    """Return every seat's samples, as a client cuts them from what the server tells it."""
    spec = describe_data(config)
    assert spec is not None
    which: dict[str, Any] = {name: value for name, value in vars(spec).items() if name != "dataset"}
    return assign(datasets.load(spec.dataset), **which)


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.3", "classes:3", "dirichlet-draws:0.5"])
@pytest.mark.parametrize("samples", [0, 200])
def test_its_shards_are_those_of_every_other_method_less_the_public_samples(
    partition: str, samples: int
) -> None:
    shared: dict[str, Any] = {"partition": partition, "samples_per_client": samples, "seed": 4}
    others = assigned(resolve(ServerConfig(method="fednag", **shared)))
    for mine, other in zip(assigned(changed(**shared)), others, strict=True):
        assert set(mine) < set(other)
        assert 0.9 * len(other) <= len(mine)


@pytest.mark.parametrize("method", [name for name in names() if name != "pfedmo"])
def test_every_other_method_has_the_same_shards(method: str) -> None:
    mine = assigned(resolve(ServerConfig(method=method, partition="dirichlet:0.3", seed=2)))
    reference = assigned(resolve(ServerConfig(partition="dirichlet:0.3", seed=2)))
    assert all(np.array_equal(one, other) for one, other in zip(mine, reference, strict=True))


def cohorts(config: ServerConfig) -> tuple[tuple[int, ...], ...]:
    """Return whom the first rounds ask, everybody having a seat."""
    rules = build_rules(config)
    roster = Roster(rules, ConductBook(rules))
    roster.take(tuple((seat, f"c{seat}") for seat in range(rules.clients)))
    return tuple(roster.choose(number).cohort for number in range(1, 6))


def test_every_method_begins_with_the_same_weights_and_asks_the_same_clients() -> None:
    begun, asked = set(), set()
    for method in map(load, names()):
        cohort = 4 if method.full_participation or method.central else 2
        config = resolve(ServerConfig(method=method.name, seed=7, cohort=cohort, model="linear"))
        begun.add(build_learner(config, load_test_set(config))[1].params.numpy().tobytes())
        asked |= {cohorts(config)} if cohort == 2 else set()
    assert (len(begun), len(asked)) == (1, 1)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "fedavg", "public_data": "p"}, "fedavg has no use for data on the server: --public-data"),
        ({"method": "fedavg", "score_data": "p"}, "fedavg has no use for data on the server: --score-data"),
        ({"dataset": None, "eval_data": "p"}, "without --dataset it needs --public-data FILE.npz"),
        ({"score_data": "p", "set": {"score_set": "test"}}, "--score-data and --set score_set=test exclude"),
    ],
)
def test_flags_that_cannot_go_together_are_refused(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    file = write(tmp_path / "p.npz")
    given = {name: file if value == "p" else value for name, value in changes.items()}
    with pytest.raises(UsageError, match=sentence):
        changed(**given)


@pytest.mark.parametrize("flag", ["public_data", "score_data"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, flag: str) -> None:
    with pytest.raises(MissingData, match=f"--{flag.replace('_', '-')} .*nowhere.npz' is not a file"):
        changed(**{flag: tmp_path / "nowhere.npz"})


@pytest.mark.parametrize("flag", ["public_data", "score_data"])
@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ({"shape": (7, 8)}, "samples have the shape 1x7x8, this run needs 1x8x8"),
        ({"highest": 10}, "labels go up to 10, this run has 10 classes: 0 to 9"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_the_run_begins(
    tmp_path: Path, flag: str, file: dict[str, Any], sentence: str
) -> None:
    config = changed(**{flag: write(tmp_path / "p.npz", **file)})
    with pytest.raises(BadData, match=f"--{flag.replace('_', '-')} .*p.npz': {sentence}"):
        build_learner(config, load_test_set(config))


def test_one_public_sample_is_too_few_to_hold_one_back(tmp_path: Path) -> None:
    config = changed(public_data=write(tmp_path / "p.npz", samples=1))
    with pytest.raises(UsageError, match="of 1 samples none can be held out"):
        build_learner(config, load_test_set(config))


def test_a_method_that_asks_for_public_data_where_there_are_none_is_told_so() -> None:
    config = resolve(ServerConfig(method="fedavg"))
    with pytest.raises(UsageError, match="fedavg needs public data on the server"):
        tools_of(config).public_data()


# ------------------------------------------------------------------------------------- resuming


def test_a_run_is_resumed_only_with_the_same_data_wherever_they_lie(tmp_path: Path) -> None:
    old = changed(public_data=write(tmp_path / "p.npz"), run_dir=tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text(to_toml(old))
    moved = (tmp_path / "p.npz").rename(tmp_path / "moved.npz")
    assert identity_difference(old, combine({"run_dir": tmp_path / "run", "public_data": moved})) == ""
    other = write(tmp_path / "other.npz", samples=21)
    with pytest.raises(UsageError, match="different in public data sha256"):
        combine({"run_dir": tmp_path / "run", "public_data": other})


def test_a_run_whose_share_was_held_back_before_the_cut_goes_on_with_its_own_shards(tmp_path: Path) -> None:
    """So did an edgeflock before; its run.toml knows of no other way."""
    new = changed(run_dir=tmp_path, partition="dirichlet:0.3")
    lines = to_toml(replace(new, public_fraction=0.05)).split("\n# crc32c ")[0].splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("public_from_shards"))
    seal = f"\n# crc32c {extend(0, text.encode()):08x} of all above: options are changed by flags, not here\n"
    (tmp_path / "run.toml").write_text(text + seal)
    old = combine({"run_dir": tmp_path, "rounds": 30})
    spec = describe_data(old)
    assert spec is not None
    assert (spec.public_fraction, spec.public_from_shards) == (0.05, 0)
    assert not np.array_equal(assigned(old)[0], assigned(new)[0])
    assert identity_difference(old, resolve(old)) == ""
    assert "public fraction" in identity_difference(old, new)


def test_without_its_run_toml_such_a_run_does_not_go_on_with_other_shards(tmp_path: Path) -> None:
    new = changed(run_dir=tmp_path, model="linear")
    old = replace(new, public_fraction=0.05, public_from_shards=0.0)
    with taken_up(build(old), tmp_path):
        pass
    with taken_up(build(resolve(old)), tmp_path):
        pass
    with (
        pytest.raises(UsageError, match="cut the shards of pfedmo otherwise"),
        taken_up(build(new), tmp_path),
    ):
        pass


def test_resolving_twice_changes_nothing_and_run_toml_holds_it_all(tmp_path: Path) -> None:
    files = {name: write(tmp_path / f"{name}.npz") for name in ("public_data", "score_data")}
    once = changed(run_dir=tmp_path, **files)
    assert resolve(once) == once
    (tmp_path / "run.toml").write_text(to_toml(once))
    assert from_toml(tmp_path / "run.toml") == once
