"""What `--on ray` looks at without a cluster: addresses, disks, facts of nodes, parcels, the board."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click
import pytest

from edgeflock.common.command import extras
from edgeflock.common.errors import UsageError
from edgeflock.common.wire.tls import read_pair
from edgeflock.lab.certs.authority import Authority
from edgeflock.lab.certs.keys import make_request
from edgeflock.lab.cluster import head, mounts, parcel, probe
from edgeflock.lab.cluster.board import Board
from edgeflock.lab.cluster.facts import Facts, look
from edgeflock.lab.cluster.joining import Node, joined, slots
from edgeflock.lab.cluster.probe import SIGN, NodeFound, Question
from edgeflock.lab.compare import where

MOUNTS = "disk / ext4 rw 0 0\nhost:/a /mnt/my\\040home nfs4 rw 0 0\nfast /mnt/my\\040home/ssd xfs rw 0 0\n"


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("/srv/runs", "ext4"),
        ("/mnt/my home/runs", "nfs4"),
        ("/mnt/my home/ssd/runs", "xfs"),
        ("/mnt/my", "ext4"),
    ],
)
def test_the_innermost_file_system_counts(folder: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.setattr(Path, "resolve", lambda path: path)
    assert mounts.kind(Path(folder), MOUNTS) == found


def test_a_disk_on_which_a_journal_is_lost_is_refused_with_the_node(tmp_path: Path) -> None:
    words = mounts.why_not(tmp_path, f"host:/a {tmp_path} nfs rw 0 0\n")
    assert (
        words
        == f"{tmp_path} lies on nfs, where SQLite's journal loses what is written: a run needs another disk"
    )
    here = look()
    with pytest.raises(UsageError, match=f"^node {here.node}: .* lies on nfs"):
        probe.judge(here, [NodeFound(here, (words,))])
    assert mounts.why_not(tmp_path) == ""


def test_a_node_that_does_not_see_the_common_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / SIGN).write_text("this")
    assert probe.answer(Question((), tmp_path, sign="this")).lacks == ()
    (said,) = probe.answer(Question((), tmp_path, sign="that")).lacks
    assert said == f"it does not see {tmp_path}, which --shared-out takes for common"


def test_a_node_without_the_data_says_which(tmp_path: Path) -> None:
    (said,) = probe.answer(Question((("mnist:official", tmp_path),), tmp_path)).lacks
    assert "mnist" in said


def test_another_version_is_refused_and_another_cpu_is_said() -> None:
    here = Facts("a", "3.11", "0.1", "2.9.1+cpu", "Xeon")
    assert probe.judge(here, [NodeFound(here), NodeFound(replace(here, node="b", torch="2.9.1"))]) == []
    with pytest.raises(UsageError, match=r"^node b: torch is 2.8.0 there and 2.9.1 on a$"):
        probe.judge(here, [NodeFound(replace(here, node="b", torch="2.8.0"))])
    (said,) = probe.judge(here, [NodeFound(here), NodeFound(replace(here, node="b", cpu="EPYC"))])
    assert said.endswith("differ between cells: Xeon (a); EPYC (b)")


def test_a_head_that_does_not_answer_is_one_sentence_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"^no Ray answers at {address}: start one by "):
            head.find(address)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(UsageError, match=r"^no Ray runs here: .* or name one by --on ray=HOST:PORT$"):
        head.find("")
    monkeypatch.setenv("RAY_ADDRESS", "ray://far:1")
    with pytest.raises(UsageError, match=r"^RAY_ADDRESS is 'ray://far:1', allowed is "):
        head.find("")


def test_without_ray_one_line_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with (
        pytest.raises(UsageError, match=r"^--on ray needs ray, which is not installed: .*\[ray\]"),
        joined("", insecure=False),
    ):
        pass


def test_what_is_for_a_cluster_is_refused_without_one() -> None:
    for words, said in (
        (("--cell-cpus=2",), "--cell-cpus is for a cluster: give --on ray, too"),
        (("--shared-out",), "--shared-out is for a cluster"),
        (("--on=slurm",), "--on is 'slurm', allowed is ray, or ray=HOST:PORT"),
        (("--on=ray", "--cell-memory=much"), "--cell-memory is 'much', allowed is a size > 0"),
    ):
        given = (
            click.Command("compare", params=where.parameters()).make_context("compare", list(words)).params
        )
        with pytest.raises(UsageError, match=f"^{said}"), where.place(**given):
            pass


def test_a_cell_that_no_node_holds_is_refused() -> None:
    nodes = [Node("1", "a", {"CPU": 4.0, "memory": 8.0 * 2**30}), Node("2", "b", {"CPU": 2.0})]
    assert slots(nodes, 2, 0, 0) == 3
    assert slots(nodes, 2, 0, 4 << 30) == 2
    with pytest.raises(UsageError, match=r"^no node has room for a cell that asks for 5 CPUs, 0 GPUs"):
        slots(nodes, 5, 0, 0)


def test_a_parcel_is_there_whole_and_what_was_there_is_kept(tmp_path: Path) -> None:
    run, home = tmp_path / "run", tmp_path / "home" / "cell"
    (run / "spool").mkdir(parents=True)
    (run / "rounds" / "000001").mkdir(parents=True)
    (run / "clients" / "0").mkdir(parents=True)
    for name in ("journal.sqlite", "lock", "rounds/000001/model.safetensors", "clients/0/state", "spool/big"):
        (run / name).write_text(name)
    packed = parcel.pack(run)
    home.mkdir(parents=True)
    (home / "unfinished").touch()
    parcel.unpack(packed, home)
    found = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    assert found == ["clients/0/state", "journal.sqlite", "rounds/000001/model.safetensors"]
    assert os.listdir(home.with_name("cell.before-1")) == ["unfinished"]
    assert sorted(os.listdir(home.parent)) == ["cell", "cell.before-1"]


def test_a_later_attempt_ends_the_earlier_one_and_both_models_are_known() -> None:
    board = Board()
    assert board.tell("a", 10, 3, "x")
    assert board.tell("a", 20, 0, "y")
    assert not board.tell("a", 10, 4, "x")
    board.made("a", 10, "one", "x")
    board.made("a", 20, "two", "y")
    entries, models = board.read()
    assert (entries["a"].round, entries["a"].node) == (0, "y")
    assert models == {"a": {10: ("one", "x"), 20: ("two", "y")}}


def test_a_key_stays_where_it_was_made_and_the_authority_vouches_for_all_clients_of_its_process(
    tmp_path: Path,
) -> None:
    authority = Authority.open(tmp_path / "tls", timedelta(days=1))
    request = make_request(["c0", "c1"], tmp_path / "key.pem")
    (tmp_path / "cert.pem").write_bytes(authority.vouch(request))
    pair = read_pair(tmp_path / "cert.pem", tmp_path / "key.pem")
    assert pair is not None
    assert {"c0", "c1"} <= set(pair.names)
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path / "tls")) == ["ca-key.pem", "ca.pem"]
