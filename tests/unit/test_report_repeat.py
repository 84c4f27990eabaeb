"""The commands of a report: what was told, without defaults, and nothing that a stranger could run."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.errors import UsageError
from edgeflock.lab.history import History, read
from edgeflock.lab.report.options import given
from edgeflock.lab.report.repeat import commands
from edgeflock.lab.run.config import FILE, LabConfig, recall, remember, usual
from edgeflock.server.journal.events import write_event
from support.told_run import told_run, writing


def told_by(history: History) -> str:
    return commands(history, given(history.config))


def words_of(run_dir: Path) -> list[list[str]]:
    """Return the words of each command, as a shell reads them."""
    return [shlex.split(text.replace("\\\n", "")) for text in told_by(read(run_dir)).split("\n\n")]


def told(run_dir: Path, *joined: dict[str, Any]) -> Path:
    with writing(run_dir) as journal:
        for fields in joined:
            write_event(journal, "client_joined", fields, 2.0)
    return run_dir


def test_a_default_is_not_said_but_for_what_names_a_run(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", method="fedtrip", set={"mu": "0.3"}, lr=0.01, weight_decay=0.0)
    [server, clients] = words_of(run_dir)
    named = ["--rounds=3", "--clients=2", "--seed=0", "--dataset=digits"]
    assert server == ["fl-server", "--method=fedtrip", "--set=mu=0.3", *named]
    assert clients == ["fl-client", "--ids=a,b"]


def test_of_a_mapping_each_key_is_looked_at_by_itself(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", budget={"time": "10m", "bytes": "5MB"}, target={"accuracy": "0.9"})
    [server, _] = words_of(run_dir)
    assert {"--budget=time=10m", "--budget=bytes=5MB", "--target=accuracy=0.9"} < set(server)


def test_a_share_that_a_client_kept_for_tests_is_said_with_its_own_data(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", names=("a", "b"), dataset=None, input_shape="4", classes=2)
    told(run_dir, {"client": "a", "hold_out": 0.2}, {"client": "b", "hold_out": 7})
    assert words_of(run_dir)[1:] == [
        ["fl-client", "--ids=a", "--hold-out=0.2", "--data=PATH"],
        ["fl-client", "--ids=b", "--data=PATH"],
    ]
    remember(run_dir, LabConfig(processes=1, client_data="c{index}.npz", hold_out=0.2))
    told(run_dir, {"client": "b", "hold_out": 0.2})
    [command] = words_of(run_dir)
    assert "--hold-out=0.2" in command
    assert not any(word.startswith("FL_CLIENT") for word in command)


def test_clients_that_were_told_other_things_have_commands_of_their_own(tmp_path: Path) -> None:
    same = {"asked": "auto", "threads": 1, "parallel": 1, "python": "3.11.2"}
    run_dir = told(
        told_run(tmp_path / "run", names=("a", "b", "c")),
        {"client": "a", **same},
        {"client": "b", **same, "watts": 7.5, "threads": 2},
        {"client": "c", **same},
    )
    assert words_of(run_dir)[1:] == [
        ["fl-client", "--ids=a,c"],
        ["fl-client", "--ids=b", "--threads=2", "--watts=7.5"],
    ]


def test_data_of_the_clients_own_have_to_be_named(tmp_path: Path) -> None:
    data = tmp_path / "test.npz"
    data.touch()
    run_dir = told_run(tmp_path / "run", eval_data=data, dataset=None)
    assert words_of(run_dir)[1][-1] == "--data=PATH"


def test_what_the_lab_started_is_its_own_command(tmp_path: Path) -> None:
    run_dir = told(
        told_run(tmp_path / "run"), *({"client": name, "watts": 3.0, "asked": "cpu"} for name in "ab")
    )
    remember(run_dir, LabConfig(processes=1, client_data="c{index}.npz", hold_out=0.2))
    [words] = words_of(run_dir)
    assert words[:3] == ["FL_CLIENT_DEVICE=cpu", "FL_CLIENT_WATTS=3.0", "fl-lab"]
    assert {"--processes=1", "--client-data=c{index}.npz", "--hold-out=0.2"} < set(words)
    remember(run_dir, LabConfig(processes=2))  # one for each client is the default
    assert not any(word.startswith("--processes") for word in words_of(run_dir)[0])


@pytest.mark.parametrize(
    "said",
    [
        {"asked": "cpu; touch x"},
        {"asked": "\x15touch x\n#"},
        {"asked": ["cpu"]},
        {"threads": 4294967295},
        {"parallel": 0},
        {"watts": -1.0},
        {"watts": "many"},
    ],
)
@pytest.mark.parametrize("lab", [False, True])
def test_what_no_fl_client_was_told_is_not_printed(tmp_path: Path, said: dict[str, Any], lab: bool) -> None:
    run_dir = told(told_run(tmp_path / "run"), *({"client": name, **said} for name in "ab"))
    if lab:
        remember(run_dir, LabConfig(processes=2))
    words = words_of(run_dir)
    assert words[-1][:2] == (["fl-lab", "run"] if lab else ["fl-client", "--ids=a,b"])


def test_a_data_set_beside_test_data_of_the_operators_own_is_said(tmp_path: Path) -> None:
    """Test data alone would mean that there is none."""
    data = tmp_path / "test.npz"
    data.touch()
    [server, clients] = words_of(told_run(tmp_path / "run", eval_data=data, dataset="digits"))
    assert {"--dataset=digits", f"--eval-data={data}"} < set(server)
    assert clients == ["fl-client", "--ids=a,b"]


def test_a_cohort_script_is_named(tmp_path: Path) -> None:
    script = tmp_path / "cohorts"
    script.write_text("a\nb\na b\n")
    [server, _] = words_of(told_run(tmp_path / "run", cohort_script=script))
    assert f"--cohort-script={script}" in server


def test_clients_of_a_run_with_tls_are_told_whom_to_trust(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    history = read(told_run(tmp_path / "run"))
    config = replace(history.config, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    assert told_by(replace(history, config=config)).endswith("--tls-ca=PATH")
    both = replace(config, tls_client_ca=tmp_path / "cert.pem")
    words = shlex.split(told_by(replace(history, config=both)).replace("\\\n", ""))
    assert words[-3:] == ["--tls-ca=PATH", "--tls-cert=PATH", "--tls-key=PATH"]


def test_a_run_that_went_on_with_fewer_rounds_than_it_had_is_repeated_with_all(tmp_path: Path) -> None:
    history = read(told_run(tmp_path / "run", rounds=3))
    fewer = replace(history, config=replace(history.config, rounds=2))
    assert "--rounds=3" in told_by(fewer)


def test_a_configuration_that_cannot_be_resolved_here_is_said_in_full(tmp_path: Path) -> None:
    """Files that it names may lie elsewhere."""
    data = tmp_path / "test.npz"
    data.touch()
    run_dir = told_run(tmp_path / "run", eval_data=data, dataset=None)
    data.unlink()
    [server, _] = words_of(run_dir)
    assert {"--lr=0.05", f"--eval-data={data}"} < set(server)


def test_more_clients_than_the_lab_starts_processes_are_hosted(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run", method="centralized", clients=2000)
    remember(run_dir, LabConfig(processes=usual(2000)))
    [words] = words_of(run_dir)
    assert "--clients=2000" in words
    assert not any(word.startswith("--processes") for word in words)


def test_how_the_lab_started_a_run_is_kept(tmp_path: Path) -> None:
    assert recall(tmp_path) is None
    (tmp_path / "clients" / "0").mkdir(parents=True)
    assert recall(tmp_path) == LabConfig(processes=1)  # as of a version that wrote nothing down
    asked = LabConfig(processes=2, client_data='a "b" {id}.npz')
    remember(tmp_path, asked)
    assert recall(tmp_path) == asked
    (tmp_path / FILE).write_text("")
    assert recall(tmp_path) == LabConfig(processes=1)
    (tmp_path / FILE).write_text("processes = 0\n")
    with pytest.raises(UsageError, match=r"processes in .*lab.toml is '?0'?, allowed is"):
        recall(tmp_path)
