"""The server's configuration: defaults filled in, rules across options, run.toml, resuming."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from edgeflock.common.command.kinds import SPAN
from edgeflock.common.command.options import options
from edgeflock.common.command.settings_file import identity_difference
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.methods.kit.base import Method, Training
from edgeflock.server.config import ServerConfig, listen_address
from edgeflock.server.files.run_toml import from_toml, to_toml
from edgeflock.server.start import resolve as resolving
from edgeflock.server.start.build import build_rules
from edgeflock.server.start.resolve import combine, here_only, resolve

PERSISTENT = Method(
    name="everybody",
    summary="needs everybody",
    training=Training(lr=0.01, batch_size=64, epochs=3),
    full_participation=True,
    own_momentum=True,
)


@pytest.fixture
def everybody(monkeypatch: pytest.MonkeyPatch) -> ServerConfig:
    """A configuration of a method with demands and training defaults of its own."""
    monkeypatch.setattr(resolving, "load", lambda name: PERSISTENT)
    return ServerConfig(method="everybody")


def test_what_nobody_said_has_the_runs_defaults() -> None:
    config = resolve(ServerConfig())
    assert (config.epochs, config.steps, config.batch_size, config.lr) == (1, None, 32, 0.05)
    assert (config.momentum, config.weight_decay, config.lr_decay) == (0.0, 0.0, 1.0)
    assert (config.cohort, config.min_updates) == (4, 2)
    assert config.set == {"weighting": "table", "clip": "0.0"}
    assert config.run_dir is not None
    assert config.run_dir.match("runs/*-fedavg")


def test_a_method_brings_its_own_defaults_and_the_user_wins(everybody: ServerConfig) -> None:
    config = resolve(replace(everybody, batch_size=8))
    assert (config.lr, config.batch_size, config.epochs, config.lr_decay) == (0.01, 8, 3, 1.0)


def test_steps_take_the_place_of_epochs(everybody: ServerConfig) -> None:
    config = resolve(replace(everybody, steps=5))
    assert (config.epochs, config.steps) == (None, 5)


def test_a_method_that_needs_everybody_waits_for_everybody(everybody: ServerConfig) -> None:
    assert resolve(everybody).min_updates == 4


def test_resolving_twice_changes_nothing(tmp_path: Path) -> None:
    once = resolve(ServerConfig(partition="dirichlet:0.50", codec="topk:0.010", clients=7, run_dir=tmp_path))
    assert resolve(once) == once


def test_run_toml_holds_everything(tmp_path: Path) -> None:
    config = resolve(
        ServerConfig(
            method="fedprox",
            set={"mu": "0.3"},
            model_arg={"hidden": "64,32"},
            steps=0,
            lr=0.0,
            eval_every=0,
            run_dir=tmp_path,
        )
    )
    path = tmp_path / "run.toml"
    path.write_text(to_toml(config))
    assert from_toml(path) == config


def test_a_run_without_a_data_set_is_read_again_without_one(tmp_path: Path) -> None:
    (tmp_path / "e.npz").touch()
    config = combine({"eval_data": tmp_path / "e.npz", "run_dir": tmp_path})
    assert config.dataset is None
    (tmp_path / "run.toml").write_text(to_toml(config))
    assert from_toml(tmp_path / "run.toml").dataset is None
    assert combine({"run_dir": tmp_path}) == config


def test_a_data_set_that_is_named_stays_beside_eval_data(tmp_path: Path) -> None:
    (tmp_path / "e.npz").touch()
    assert combine({"eval_data": tmp_path / "e.npz", "dataset": "digits"}).dataset == "digits"


def test_the_run_toml_of_one_run_starts_another_like_it(tmp_path: Path) -> None:
    from edgeflock.common.command.options import gather

    config = started(tmp_path / "one", method="fedprox", set={"mu": "0.3"}, seed=5)
    given = gather(ServerConfig, {}, {}, "FL_SERVER", tmp_path / "one" / "run.toml")
    assert combine({**given, "run_dir": tmp_path / "two"}) == replace(config, run_dir=tmp_path / "two")


def started(folder: Path, **values: Any) -> ServerConfig:
    """A run directory as the server leaves it behind."""
    folder.mkdir(exist_ok=True)
    config = combine({"run_dir": folder, **values})
    (folder / "run.toml").write_text(to_toml(config))
    return config


def test_the_run_directory_alone_resumes_its_run(tmp_path: Path) -> None:
    config = started(tmp_path, method="fedprox", set={"mu": "0.3"}, lr=0.2, steps=7)
    assert combine({"run_dir": tmp_path}) == config


def test_more_rounds_and_other_operations_are_the_same_run(tmp_path: Path) -> None:
    config = started(tmp_path)
    changes: dict[str, Any] = {"rounds": 99, "deadline": 5.0, "listen": "127.0.0.1:0", "keep_every": 3}
    assert combine({"run_dir": tmp_path, **changes}) == replace(config, **changes)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "--seed (0 there, 1 here)"),
        ({"set": {"clip": "2"}}, "--set clip (0.0 there, 2.0 here)"),
        ({"epochs": 4}, "--epochs (1 there, 4 here)"),
        ({"steps": 4}, "--steps (none there, 4 here)"),
        (
            {"lr": 0.5, "partition": "dirichlet:1"},
            "--partition (iid there, dirichlet:1.0 here), --lr (0.05 there",
        ),
        ({"codec": "fp16"}, "--codec (identity there, fp16 here)"),
        ({"model_arg": {"hidden": "9"}}, "--model-arg hidden (None there, 9 here)"),
    ],
)
def test_another_identity_is_another_run_and_is_named(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    started(tmp_path)
    with pytest.raises(UsageError, match="holds another run") as caught:
        combine({"run_dir": tmp_path, **change})
    assert named in str(caught.value)


IDENTITY = """method set clients cohort participation cohort_lines seed model model_arg dataset partition
    samples_per_client public_fraction public_from_shards central epochs steps batch_size lr momentum
    weight_decay lr_decay over_select codec codec_down"""
OPERATION = """rounds budget target eval_every eval_clients eval_blocking deadline min_updates
    quarantine_after quarantine_rounds max_clients_wait run_dir listen control keep_every linger
    drain_timeout dashboard log_level credit_mib"""


def test_a_run_is_what_its_bits_depend_on_and_may_be_operated_otherwise() -> None:
    identity = {entry.name for entry in options(ServerConfig) if entry.identity}
    assert set(IDENTITY.split()) <= identity
    assert not set(OPERATION.split()) & identity
    assert {entry.name for entry in options(ServerConfig)} >= set(OPERATION.split())


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("rounds", 1, None), ("clients", 1, 1_000_000), ("cohort", 0, None), ("seed", 0, 2**63 - 1),
        ("samples_per_client", 0, None), ("epochs", 1, None), ("steps", 0, None), ("batch_size", 0, None),
        ("lr", 0, None), ("momentum", 0, None), ("weight_decay", 0, None), ("eval_every", 0, None),
        ("min_updates", 0, None), ("over_select", 0, None), ("quarantine_after", 0, None),
        ("quarantine_rounds", 1, None), ("credit_mib", 1, 65536), ("drain_timeout", 0, None),
        ("linger", 0, None), ("metrics_clients", 0, 10_000), ("keep_every", 0, None),
    ],
)  # fmt: skip
def test_numbers_are_taken_from_the_lowest_to_the_highest(
    name: str, lowest: int, highest: int | None
) -> None:
    (entry,) = (entry for entry in options(ServerConfig) if entry.name == name)
    assert entry.allowed is not None
    assert [entry.allowed.accepts(value) for value in (lowest - 1, lowest)] == [False, True]
    if highest is not None:
        assert [entry.allowed.accepts(value) for value in (highest, highest + 1)] == [True, False]


@pytest.mark.parametrize("more", [{}, {"set": {"mu": "0.1"}}, {"rounds": 50}])
def test_another_method_is_told_before_the_options_of_either(tmp_path: Path, more: dict[str, Any]) -> None:
    """The options in run.toml are the old method's: the new one knows none of them."""
    started(tmp_path, method="fedmrur", set={"cm_alpha": "0.5"})
    with pytest.raises(UsageError) as caught:
        combine({"run_dir": tmp_path, "method": "fedprox", **more})
    assert str(caught.value) == (
        f"{tmp_path} holds a run of fedmrur, --method is fedprox: leave --method away to go on with it, "
        "or give another --run-dir"
    )
    with pytest.raises(UsageError, match="unknown method 'fedproks': did you mean 'fedprox'"):
        combine({"run_dir": tmp_path, "method": "fedproks"})


def test_a_cohort_may_be_a_range_and_comes_back_from_the_run_directory(tmp_path: Path) -> None:
    config = started(tmp_path, clients=8, cohort="3..8")
    assert (config.cohort, config.min_updates) == ("3..8", 2)
    assert combine({"run_dir": tmp_path}) == config
    rules = build_rules(config)
    assert (rules.least, rules.cohort, rules.min_updates) == (3, 8, 2)
    assert (build_rules(resolve(ServerConfig(clients=8, cohort=8))).least, SPAN.read("5..5")) == (0, 5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cohort": "3..9"}, "--cohort is '3..9', allowed is at most --clients, which is 8"),
        ({"cohort": "3..8", "min_updates": 4}, "allowed is at most the least of the cohort, which is 3"),
        ({"cohort": "3..8", "over_select": 1}, "allowed is at most --clients - --cohort, which is 0"),
        ({"cohort": "3..8", "cohort_lines": ("c0",), "rounds": 1}, "--cohort is 3..8, give one of them"),
        ({"cohort": "3..8", "method": "pfedmo"}, "in every round: --cohort is 3..8 of --clients 8"),
    ],
)
def test_a_range_that_cannot_be_is_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        resolve(ServerConfig(clients=8, **given))


def test_a_cohort_script_is_part_of_the_run_and_not_its_path(tmp_path: Path) -> None:
    script = tmp_path / "cohorts.txt"
    script.write_text("c0  c1\nc2 c3 c0\n")
    config = started(tmp_path, cohort_script=script, rounds=2)
    assert (config.cohort_lines, config.min_updates) == (("c0 c1", "c2 c3 c0"), 1)
    moved = resolve(replace(config, cohort_script=script.rename(tmp_path / "other.txt")))
    assert identity_difference(config, moved) == ""
    (tmp_path / "other.txt").write_text("c0 c1\nc2\n")
    assert "cohort lines (c0 c1; c2 c3 c0 there, c0 c1; c2 here)" in identity_difference(
        config, resolve(moved)
    )


def test_a_cohort_script_must_reach_the_last_round(tmp_path: Path) -> None:
    (tmp_path / "cohorts.txt").write_text("c0\nc1\n")
    config = started(tmp_path, cohort_script=tmp_path / "cohorts.txt", rounds=2)
    sentence = "--cohort-script has 2 lines, one per round, --rounds is 3"
    with pytest.raises(UsageError, match=sentence):
        resolve(replace(config, rounds=3))
    with pytest.raises(UsageError, match=sentence):
        combine({"run_dir": tmp_path, "rounds": 3})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("", "is empty"), ("c0\n\nc1\n", "line 2 is empty"), ("c0 c1 c0\n", "line 1 names a client twice")],
)
def test_a_bad_cohort_script_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    script = tmp_path / "cohorts.txt"
    script.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        resolve(ServerConfig(cohort_script=script))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"lr_decay": 1.1, "rounds": 500},
            "--lr-decay is 1.1, allowed is a factor with which --lr 0.05 stays below 1e+06 in 500 rounds",
        ),
        ({"method": "fedavgg"}, "unknown method 'fedavgg': did you mean 'fedavg'?"),
        ({"set": {"mu": "1"}}, "unknown option 'mu': known are clip, weighting; of fedprox, fedtrip, moon"),
        (
            {"set": {"batch_size": "8"}},
            "batch_size is an option of the run, for every method: --batch-size 8",
        ),
        ({"method": "fedprox", "set": {"mu": "-1"}}, "mu is '-1', allowed is a number >= 0"),
        ({"model": "mpl"}, "unknown model 'mpl': did you mean 'mlp'?"),
        ({"codec": "zip"}, "unknown codec 'zip'"),
        ({"codec_down": "int8"}, "--codec-down is 'int8', allowed is identity, fp16, bf16"),
        ({"partition": "dirichlet:0"}, "partition is 'dirichlet:0', allowed is "),
        ({"rounds": 0}, "--rounds is 0, allowed is an integer >= 1"),
        ({"clients": 0}, "--clients is 0, allowed is an integer from 1"),
        ({"cohort": 5}, "--cohort is 5, allowed is at most --clients, which is 4"),
        (
            {"cohort": 3, "over_select": 2},
            "--over-select is 2, allowed is at most --clients - --cohort, which is 1",
        ),
        ({"min_updates": 5}, "--min-updates is 5, allowed is at most the cohort, which is 4"),
        ({"epochs": 1, "steps": 1}, "--epochs and --steps exclude each other"),
        ({"lr": 0.0}, "--lr is 0.0, allowed is a number > 0 (0 only with --steps 0)"),
        ({"momentum": 1.0}, "--momentum is 1.0, allowed is a number in [0, 1)"),
        ({"participation": "all"}, "--participation is 'all', allowed is roster or online"),
        ({"listen": "0.0.0.0:9300"}, "--listen 0.0.0.0:9300 reaches beyond this machine"),
        ({"listen": "host"}, "--listen is 'host', allowed is host:port"),
        ({"listen": "0.0.0.0:1", "insecure": True, "reflection": True}, "--reflection is for development"),
        ({"control": "0.0.0.0:1"}, "--control is '0.0.0.0:1', allowed is a loopback address or unix:path"),
        ({"deadline": 0.0}, "--deadline is 0.0, allowed is a time > 0"),
        ({"data_root": Path("no-such-folder")}, "--data-root 'no-such-folder' is not a directory"),
        ({"eval_data": Path("no-such.npz")}, "--eval-data 'no-such.npz' is not a file or folder"),
        (
            {"tests_only": True, "rounds": 1, "every": 60.0},
            "--every with --evaluate-only asks again and again",
        ),
        ({"dataset": None}, "neither --dataset nor --eval-data is given"),
        ({"dataset": None, "input_shape": "6"}, "--input-shape alone does not say how many outputs"),
        ({"cohort_script": Path("no-such.txt")}, "cannot read --cohort-script 'no-such.txt'"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EdgeflockError) as caught:
        resolve(ServerConfig(**values))
    assert str(caught.value).startswith(sentence)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"participation": "online"}, "everybody needs every client in every round: --participation online"),
        ({"cohort": 3}, "everybody needs every client in every round: --cohort is 3 of --clients 4"),
        ({"min_updates": 3}, "everybody needs every client in every round: --min-updates is 3, allowed is 4"),
        (
            {"cohort_lines": ("c0 c1",) * 20},
            "everybody needs every client in every round: --cohort-script leaves",
        ),
        (
            {"momentum": 0.5},
            "--momentum is 0.5, allowed is 0 with everybody, which has a momentum of its own",
        ),
    ],
)
def test_the_demands_of_a_method_are_kept(
    everybody: ServerConfig, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(replace(everybody, **values))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("values", "target"),
    [({}, "127.0.0.1:9300"), ({"insecure": True}, "0.0.0.0:9300"), ({"tls_cert": Path("x")}, "0.0.0.0:9300")],
)
def test_a_colon_and_a_port_are_every_interface_only_where_that_is_safe(
    values: dict[str, Any], target: str
) -> None:
    assert listen_address(ServerConfig(listen=":9300", **values)).target == target


def test_a_port_without_a_host_needs_no_other_flag() -> None:
    assert resolve(ServerConfig(listen=":9300", dashboard="8080")).listen == ":9300"


@pytest.mark.parametrize(
    ("listen", "insecure", "said"),
    [
        (":9300", False, True),
        (":9300", True, False),
        ("9300", False, False),
        ("127.0.0.1:9300", False, False),
    ],
)
def test_a_server_that_devices_cannot_reach_says_so(listen: str, insecure: bool, said: bool) -> None:
    words = here_only(ServerConfig(listen=listen, insecure=insecure))
    assert words.startswith("--listen :9300 without TLS is this machine alone: for devices give") == said
    assert bool(words) == said


@pytest.mark.parametrize(
    ("listen", "name"),
    [("192.0.2.2:9300", "192.0.2.2"), ("0.0.0.0:9300", gethostname()), ("[::1:2]:9", "::1:2")],
)
def test_plain_text_beyond_this_machine_is_answered_with_the_command_that_helps(
    listen: str, name: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(ServerConfig(listen=listen))
    assert f"(which 'fl-lab certs certs --server {name}' makes)" in str(caught.value)


def test_of_an_autoencoder_the_shape_of_a_sample_says_all() -> None:
    config = resolve(ServerConfig(dataset=None, input_shape="3x4", task="autoencoder"))
    assert config.classes == 12
    assert resolve(config) == config
